//! `mica run ROLE`: one part of the platform as a process of its own.

mod controllers;

use crate::cli::{Role, RunArgs};
use crate::up::running;

pub fn run(arguments: RunArgs) -> anyhow::Result<()> {
    match arguments.role {
        Role::Controllers(arguments) => running::block_on(controllers::run(arguments)),
    }
}
