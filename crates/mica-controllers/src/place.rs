//! Which control plane an object is in, and its address.

use compact_str::CompactString;
use mica_runtime::ClusterName;

/// A control plane of the server that is served: its root, or one of its planes.
///
/// A server without planes has only a root. Holds no client and no state: an idle plane costs nothing here.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place(ClusterName);

/// Between a plane's name and its id, which no name holds.
const BETWEEN: char = '@';

impl Place {
    pub fn root() -> Self {
        Self(ClusterName::local())
    }

    /// A plane. Its name is its address; its id tells it from others that had the name before.
    pub fn plane(name: &str, id: &str) -> Self {
        Self(ClusterName::new(format!("{name}{BETWEEN}{id}")))
    }

    pub fn of(cluster: &ClusterName) -> Self {
        Self(cluster.clone())
    }

    /// What queues know it by.
    pub fn cluster(&self) -> &ClusterName {
        &self.0
    }

    /// The plane's name; root has none.
    pub fn name(&self) -> Option<&str> {
        self.0.as_str().split_once(BETWEEN).map(|(name, _)| name)
    }

    /// The path that all of its addresses begin with.
    pub fn prefix(&self) -> String {
        match self.0.as_str().split_once(BETWEEN) {
            None => String::new(),
            Some((name, _)) => format!("/clusters/{name}/control-plane"),
        }
    }
}

/// The path of a collection: of one namespace, or of all (and of what has none).
pub fn collection(place: &Place, api_version: &str, resource: &str, namespace: Option<&str>) -> String {
    let base = if api_version.contains('/') { "apis" } else { "api" };
    let prefix = place.prefix();
    match namespace {
        None => format!("{prefix}/{base}/{api_version}/{resource}"),
        Some(namespace) => format!("{prefix}/{base}/{api_version}/namespaces/{namespace}/{resource}"),
    }
}

/// The path of an object.
pub fn object(place: &Place, api_version: &str, resource: &str, namespace: Option<&str>, name: &str) -> String {
    format!(
        "{}/{}",
        collection(place, api_version, resource, namespace),
        escape(name)
    )
}

/// Names of some kinds (roles) hold what paths mean otherwise.
fn escape(name: &str) -> CompactString {
    const KEPT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b':');
    percent_encoding::utf8_percent_encode(name, KEPT)
        .collect::<String>()
        .into()
}

/// A value of a query.
pub fn query_value(value: &str) -> String {
    percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_plane() {
        let (root, plane) = (Place::root(), Place::plane("p1", "0123456789ab"));
        assert_eq!(
            collection(&root, "v1", "pods", Some("ns")),
            "/api/v1/namespaces/ns/pods"
        );
        assert_eq!(
            collection(&root, "apps/v1", "deployments", None),
            "/apis/apps/v1/deployments"
        );
        assert_eq!(
            object(
                &plane,
                "rbac.authorization.k8s.io/v1",
                "clusterroles",
                None,
                "system:a/b"
            ),
            "/clusters/p1/control-plane/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%2Fb"
        );
        assert_eq!(Place::of(plane.cluster()), plane);
        assert_ne!(
            plane,
            Place::plane("p1", "ba9876543210"),
            "a new plane of an old name is another"
        );
    }
}
