//! Discovery documents: what a plane serves, in the old form and the aggregated one. Made once for each set of resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use mica_machinery::kind::custom::compare_versions;

use crate::scheme::{Served, join_version};

/// Where groups stand in discovery: upstream's APIService group priorities, highest first.
const GROUP_PRIORITIES: &[(&str, u32)] = &[
    ("", 18_000),
    ("apiregistration.k8s.io", 17_900),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("internal.apiserver.k8s.io", 16_000),
    ("storagemigration.k8s.io", 15_800),
    // Ours come after upstream's.
    ("mica.dev", 1_000),
];

/// Where upstream puts the groups of custom resources.
const CUSTOM_PRIORITY: u32 = 1_000;

/// Kinds that upstream stores in a version before the one served, so that the server before it could read them, and what has no version
/// because nothing is stored. Ours are stored in no version's own form: only what clients are told of it is held to.
const STORED_IN: &[(&str, &str, Option<&str>)] = &[
    ("", "componentstatuses", None),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        Some("v1beta1"),
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        Some("v1beta1"),
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions", Some("v1beta1")),
];

/// All documents of one set of resources.
#[derive(Debug)]
pub struct Documents {
    /// `/api`
    pub legacy: Value,
    /// `/apis`
    pub groups: Value,
    group: BTreeMap<String, Value>,
    version: BTreeMap<(String, String), Value>,
    /// `/api` and `/apis` in the aggregated form.
    pub aggregated_legacy: Aggregated,
    pub aggregated_groups: Aggregated,
    /// `/`
    pub index: Value,
}

/// An aggregated document and its entity tag.
#[derive(Debug)]
pub struct Aggregated {
    pub document: Value,
    pub etag: String,
}

impl Aggregated {
    fn new(items: Vec<Value>) -> Self {
        let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
        let hash = Sha256::digest(document.to_string());
        let etag = format!(
            "\"{}\"",
            hash.iter().map(|byte| format!("{byte:02X}")).collect::<String>()
        );
        Self { document, etag }
    }
}

impl Documents {
    /// The documents of these resources.
    pub fn new<'a>(resources: impl Iterator<Item = &'a Arc<Served>>) -> Self {
        let resources: Vec<&Served> = resources.map(AsRef::as_ref).collect();
        let resources = resources.as_slice();
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for served in resources {
            let (name, version) = (served.group(), served.version());
            match groups.iter_mut().find(|(group, _)| *group == name) {
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
                None => groups.push((name, vec![version])),
            }
        }
        let priority = |name: &str| {
            GROUP_PRIORITIES
                .iter()
                .find(|(group, _)| *group == name)
                .map_or(CUSTOM_PRIORITY, |(_, priority)| *priority)
        };
        groups.sort_by(|(a, _), (b, _)| priority(b).cmp(&priority(a)).then(a.cmp(b)));
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| compare_versions(b, a));
        }
        let named = groups.iter().filter(|(name, _)| !name.is_empty());
        let group: BTreeMap<String, Value> = named
            .clone()
            .map(|(name, versions)| ((*name).to_owned(), group_document(name, versions)))
            .collect();
        let listed: Vec<Value> = named
            .clone()
            .map(|(name, _)| {
                let mut group = group[*name].clone();
                for field in ["kind", "apiVersion"] {
                    mica_machinery::object::remove(&mut group, &[field]);
                }
                group
            })
            .collect();
        let version = groups
            .iter()
            .flat_map(|(name, versions)| versions.iter().map(move |version| (*name, *version)))
            .map(|(name, version)| {
                (
                    (name.to_owned(), version.to_owned()),
                    version_document(resources, name, version),
                )
            })
            .collect();
        let legacy_items = vec![aggregated_group(resources, "", &["v1"])];
        let group_items = named
            .map(|(name, versions)| aggregated_group(resources, name, versions))
            .collect();
        Self {
            legacy: json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]}),
            groups: json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}),
            group,
            version,
            aggregated_legacy: Aggregated::new(legacy_items),
            aggregated_groups: Aggregated::new(group_items),
            index: index(&groups),
        }
    }

    /// `/apis/{group}`
    pub fn group(&self, group: &str) -> Option<&Value> {
        self.group.get(group)
    }

    /// `/api/{version}` and `/apis/{group}/{version}`
    pub fn version(&self, group: &str, version: &str) -> Option<&Value> {
        self.version.get(&(group.to_owned(), version.to_owned()))
    }
}

fn group_document(name: &str, versions: &[&str]) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": join_version(name, version), "version": version}))
        .collect();
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "preferredVersion": entries[0], "versions": entries})
}

fn version_document(all: &[&Served], group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for served in in_version(all, group, version) {
        resources.push(resource_entry(served));
        for subresource in served.subresources() {
            let mut entry = json!({"name": format!("{}/{}", served.plural(), subresource.name), "singularName": "",
                "namespaced": served.namespaced(), "kind": served.kind(), "verbs": subresource.verbs});
            if let Some((group, version, kind)) = subresource.kind {
                // Upstream names a version only where it is another than that of the list.
                if (group, version) != (served.group(), served.version()) {
                    entry["group"] = group.into();
                    entry["version"] = version.into();
                }
                entry["kind"] = kind.into();
            }
            resources.push(entry);
        }
    }
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": join_version(group, version), "resources": resources});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    document
}

fn resource_entry(served: &Served) -> Value {
    let mut entry = json!({"name": served.plural(), "singularName": served.singular(),
        "namespaced": served.namespaced(), "kind": served.kind(), "verbs": served.verbs()});
    name_lists(served, &mut entry);
    if served.verbs().contains(&"list")
        && let Some(hash) = storage_version_hash(served)
    {
        entry["storageVersionHash"] = hash.into();
    }
    entry
}

fn name_lists(served: &Served, entry: &mut Value) {
    for (field, names) in [
        ("shortNames", served.short_names()),
        ("categories", served.categories()),
    ] {
        if !names.is_empty() {
            entry[field] = names.into();
        }
    }
}

/// What clients compare to learn that objects are stored in another version.
fn storage_version_hash(served: &Served) -> Option<String> {
    let named = |(group, plural, _): &&(&str, &str, _)| (*group, *plural) == (served.group(), served.plural());
    let (group, version, kind) = match (served.face(), served.custom_kind()) {
        (Some(stored), _) => (stored.group, stored.version, stored.kind),
        (None, Some(custom)) => (served.group(), custom.storage_version.as_str(), served.kind()),
        (None, None) => {
            let version = match STORED_IN.iter().find(named) {
                Some((_, _, version)) => (*version)?,
                None => served.version(),
            };
            (served.group(), version, served.kind())
        }
    };
    Some(STANDARD.encode(&Sha256::digest(format!("{group}/{version}/{kind}"))[..8]))
}

fn in_version<'a>(all: &[&'a Served], group: &str, version: &str) -> Vec<&'a Served> {
    let of_version = all
        .iter()
        .filter(|served| served.group() == group && served.version() == version);
    let mut served: Vec<&Served> = of_version.copied().collect();
    served.sort_by_key(|served| served.plural());
    served
}

fn aggregated_group(all: &[&Served], group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = in_version(all, group, version)
                .into_iter()
                .map(aggregated_resource)
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(served: &Served) -> Value {
    // Upstream leaves group and version empty where they are those of the list, but for custom resources.
    let own_kind = match served.custom_kind() {
        Some(custom) => json!({"group": custom.group, "version": custom.version, "kind": custom.kind}),
        None => json!({"group": "", "version": "", "kind": served.kind()}),
    };
    let mut entry = json!({"resource": served.plural(), "responseKind": own_kind,
        "scope": if served.namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": served.singular(), "verbs": served.verbs()});
    name_lists(served, &mut entry);
    let subresources: Vec<Value> = served
        .subresources()
        .iter()
        .map(|subresource| {
            let kind = match subresource.kind {
                Some((group, version, kind)) if (group, version) == (served.group(), served.version()) => {
                    json!({"group": "", "version": "", "kind": kind})
                }
                Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
                None => own_kind.clone(),
            };
            json!({"subresource": subresource.name, "responseKind": kind, "verbs": subresource.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn index(groups: &[(&str, Vec<&str>)]) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    for (group, versions) in groups {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
        }
        let prefix = if group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{group}")
        };
        paths.extend(versions.iter().map(|version| format!("{prefix}/{version}")));
    }
    paths.sort();
    json!({"paths": paths})
}
