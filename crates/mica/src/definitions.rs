//! `mica definitions`: what another cluster needs before our controllers serve it, as YAML to be applied.

use mica_api::control_plane;
use mica_controllers::control_plane::operator_roles;

use crate::cli::Definitions;
use crate::output;

pub fn print(what: Definitions) -> anyhow::Result<()> {
    let all = match what {
        Definitions::ControlPlane => control_plane::definitions(),
        Definitions::ControlPlaneRoles => operator_roles(),
    };
    let documents: Vec<String> = all.iter().map(mica_machinery::yaml::from_json).collect();
    Ok(output::print(&documents.join("---\n"))?)
}
