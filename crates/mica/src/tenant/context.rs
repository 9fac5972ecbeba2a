//! `mica ctx`: the tree of organizations and projects, and going to one of them.
//!
//! Going somewhere writes a context into the kubeconfig in use, with the credentials of the present one, and makes it the
//! current one: kubectl and mica are then both there.

use http::{Method, StatusCode};
use mica_api::tenancy::{MAX_ORGANIZATION_NAME, MAX_PROJECT_NAME, ORGANIZATIONS, organization_path, project_path};

use super::args::CtxArgs;
use super::{at, check_names, collection, sight};
use crate::client::{Client, Kubeconfig};
use crate::exit::Usage;
use crate::output;

/// Where somebody is, or goes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Platform,
    Organization(String),
    Project(String),
}

impl Place {
    fn path(&self) -> String {
        match self {
            Self::Platform => String::new(),
            Self::Organization(name) => organization_path(name),
            Self::Project(name) => project_path(name),
        }
    }

    fn context(&self) -> String {
        match self {
            Self::Platform => "mica".to_owned(),
            Self::Organization(name) => format!("mica-organization-{name}"),
            Self::Project(name) => format!("mica-project-{name}"),
        }
    }
}

pub async fn run(arguments: CtxArgs) -> anyhow::Result<()> {
    let mut client = Client::connect_root(&arguments.server).await?;
    match arguments.target {
        None => {
            let here = Kubeconfig::load(
                arguments.server.kubeconfig.as_deref(),
                arguments.server.context.as_deref(),
            )?;
            tree(&mut client, &here.server).await
        }
        Some(target) => {
            let place = find(&mut client, &target).await?;
            let server = format!("{}{}", client.config().server, place.path());
            let path = Kubeconfig::path(arguments.server.kubeconfig.as_deref())?;
            Kubeconfig::switch(&path, arguments.server.context.as_deref(), &place.context(), &server)?;
            Ok(output::print(&format!("now at {target} ({server})\n"))?)
        }
    }
}

/// Everything that the asker sees, with a mark where they are.
async fn tree(client: &mut Client, here: &str) -> anyhow::Result<()> {
    let base = client.config().server.clone();
    let mark = |place: &Place| match here == format!("{base}{}", place.path()) {
        true => "*",
        false => " ",
    };
    let mut text = format!("{} /\n", mark(&Place::Platform));
    for (organization, projects) in sight::tree(client).await? {
        let place = Place::Organization(organization.clone());
        text.push_str(&format!("{}   {organization}\n", mark(&place)));
        for project in projects {
            let place = Place::Project(project.clone());
            text.push_str(&format!("{}     {organization}/{project}\n", mark(&place)));
        }
    }
    Ok(output::print(&text)?)
}

/// The place that a word means, if it is there.
async fn find(client: &mut Client, target: &str) -> anyhow::Result<Place> {
    if target == "/" {
        return Ok(Place::Platform);
    }
    let (organization, project) = match target.split_once('/') {
        None => (target.to_owned(), None),
        Some((organization, project)) => (organization.to_owned(), Some(project.to_owned())),
    };
    check_names(&[&organization], MAX_ORGANIZATION_NAME)?;
    sight::organization(client, &organization).await?;
    let Some(project) = project else {
        return Ok(Place::Organization(organization));
    };
    check_names(&[&project], MAX_PROJECT_NAME)?;
    match client.json(Method::GET, &at(Some(&organization), &project), None).await {
        Ok(_) => Ok(Place::Project(project)),
        Err(error) if sight::is(&error, StatusCode::NOT_FOUND) => Err(Usage(format!(
            "project {project:?} is not one of organization {organization:?}"
        ))
        .into()),
        Err(error) => Err(error),
    }
}

/// The organization that a kubeconfig is at.
pub fn organization(here: &Kubeconfig) -> Option<String> {
    let root = here.clone().at_root().server;
    let path = here.server.strip_prefix(&root)?;
    let name = path.strip_prefix(&collection(ORGANIZATIONS))?.strip_prefix('/')?;
    name.strip_suffix("/control-plane").map(str::to_owned)
}
