//! The `mica` binary: the command line, and nothing that a library could hold.

mod audit;
mod authentication;
mod cli;
mod client;
mod config;
mod control_plane;
mod dedicated;
mod definitions;
mod dropin;
mod exit;
mod limits;
mod metric;
mod new;
mod operator;
mod output;
mod plane;
mod role;
mod store;
mod tenant;
mod trace;
mod up;

use std::process::ExitCode;

use clap::CommandFactory as _;

use cli::{Cli, Command, EnvtestCommand, NewCommand};
use dropin::Program;

/// Gives back what is freed, see `.cargo/config.toml`.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    small_pages();
    let mut called = std::env::args_os();
    if let Some(program) = called.next().as_ref().and_then(|path| Program::called(path.as_ref())) {
        return program.run(called);
    }
    let cli = cli::parse();
    let done = match cli.command {
        Command::KubeApiserver(foreign) => return Program::KubeApiserver.run(foreign.arguments),
        Command::EtcdStub(foreign) => return Program::Etcd.run(foreign.arguments),
        Command::Envtest(arguments) => match arguments.command {
            EnvtestCommand::Install { directory, kubectl } => dropin::install(&directory, kubectl),
        },
        Command::New(arguments) => match arguments.command {
            NewCommand::Controller { name, directory, mica } => new::controller(&name, directory, mica),
        },
        Command::Up(arguments) => up::run(arguments),
        Command::Run(arguments) => role::run(*arguments),
        Command::Plane(arguments) => client::block_on(plane::run(arguments)),
        Command::Org(arguments) => client::block_on(tenant::organizations(arguments)),
        Command::Project(arguments) => client::block_on(tenant::projects(arguments)),
        Command::ControlPlane(arguments) => client::block_on(control_plane::run(arguments)),
        Command::Ctx(arguments) => client::block_on(tenant::switch(arguments)),
        Command::Store(arguments) => client::block_on(store::run(arguments)),
        Command::Definitions { what } => definitions::print(what),
        Command::Completion { shell } => completion(shell),
        Command::Version { output } => output::version(output),
    };
    exit::code(done)
}

/// Memory comes in small pages. In huge ones, which the system may give unasked, a server at rest would take about twice as much:
/// what is freed is given back only where two megabytes of it are free together.
fn small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        // Nothing logs yet, and nothing is lost but memory.
        eprintln!("mica: huge pages stay on: {error}");
    }
}

fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    // Made whole first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mica", &mut script);
    Ok(output::print(&String::from_utf8_lossy(&script))?)
}
