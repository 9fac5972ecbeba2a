//! What is reconciled: an object of a cluster.

use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;

/// The name of a cluster, as its provider gives it. The local (management) cluster has the empty name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(name.as_ref().into())
    }

    /// The cluster that the manager itself runs against.
    pub fn local() -> Self {
        Self::new("")
    }

    pub fn is_local(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// One object of one cluster. Two requests for the same object are the same request.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Request {
    pub cluster: ClusterName,
    /// `None` for objects without a namespace.
    pub namespace: Option<CompactString>,
    pub name: CompactString,
}

impl Request {
    pub fn new(cluster: ClusterName, namespace: Option<&str>, name: &str) -> Self {
        Self {
            cluster,
            namespace: namespace.map(CompactString::from),
            name: name.into(),
        }
    }
}

impl fmt::Display for Request {
    /// `cluster://name/namespace/object`; the local cluster's objects have no prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cluster.is_local() {
            write!(f, "cluster://{}/", self.cluster)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
