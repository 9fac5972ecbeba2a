//! What there is of organizations and projects, as far as the asker may see it.
//!
//! Administrators see all of the platform. Everybody else has a view of their own, which says what organizations they are in,
//! and the views of those.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use mica_api::tenancy::{MEMBERSHIPS, ORGANIZATIONS, PROJECTS, organization_path, user_path};
use serde_json::{Value, json};

use super::{collection, name_of, one};
use crate::client::{Client, Refused};
use crate::output;

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The names of organizations, each with its projects'.
pub type Tree = BTreeMap<String, Vec<String>>;

pub async fn tree(client: &mut Client) -> anyhow::Result<Tree> {
    match platform(client).await {
        Err(error) if is(&error, StatusCode::FORBIDDEN) => memberships(client).await,
        seen => seen,
    }
}

async fn platform(client: &mut Client) -> anyhow::Result<Tree> {
    let organizations = client.json(Method::GET, &collection(ORGANIZATIONS), None).await?;
    let projects = client.json(Method::GET, &collection(PROJECTS), None).await?;
    let mut tree: Tree = names(&organizations).map(|name| (name, Vec::new())).collect();
    for project in output::list(&projects, "items") {
        let owner = project["spec"]["ownerRef"]["name"].as_str().unwrap_or_default();
        let projects = tree.entry(owner.to_owned()).or_default();
        projects.extend(name_of(project).map(str::to_owned));
    }
    Ok(tree)
}

async fn memberships(client: &mut Client) -> anyhow::Result<Tree> {
    let path = format!("{}{}", own(client).await?, collection(MEMBERSHIPS));
    let memberships = client.json(Method::GET, &path, None).await?;
    let mut tree = Tree::new();
    for membership in output::list(&memberships, "items") {
        let organization = membership["spec"]["organizationRef"]["name"]
            .as_str()
            .unwrap_or_default();
        let path = format!("{}{}", organization_path(organization), collection(PROJECTS));
        let projects = match client.json(Method::GET, &path, None).await {
            Ok(projects) => projects,
            // Members need not be let see what there is.
            Err(error) if is(&error, StatusCode::FORBIDDEN) => json!({}),
            Err(error) => return Err(error),
        };
        tree.insert(organization.to_owned(), names(&projects).collect());
    }
    Ok(tree)
}

/// An organization, which the asker may know as an administrator or as a member.
pub async fn organization(client: &mut Client, name: &str) -> anyhow::Result<Value> {
    match client.json(Method::GET, &one(ORGANIZATIONS, name), None).await {
        Err(error) if is(&error, StatusCode::FORBIDDEN) => {
            let path = format!("{}{}", own(client).await?, one(ORGANIZATIONS, name));
            client.json(Method::GET, &path, None).await
        }
        found => found,
    }
}

/// The asker's own view.
async fn own(client: &mut Client) -> anyhow::Result<String> {
    let asker = client.json(Method::POST, WHO, Some(json!({}))).await?;
    let user = &asker["status"]["userInfo"];
    let known = |field: &str| user[field].as_str().filter(|text| !text.is_empty());
    Ok(user_path(known("uid").or(known("username")).unwrap_or_default()))
}

pub fn is(error: &anyhow::Error, code: StatusCode) -> bool {
    error
        .downcast_ref::<Refused>()
        .is_some_and(|refused| refused.code == code)
}

fn names(list: &Value) -> impl Iterator<Item = String> {
    output::list(list, "items")
        .iter()
        .filter_map(name_of)
        .map(str::to_owned)
}
