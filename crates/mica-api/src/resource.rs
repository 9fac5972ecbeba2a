//! Names of API resources, independent of version.

use std::fmt;

/// A group and a plural resource name, the unit under which objects are stored and watched.
///
/// Its text is `group/resource`; the core group is empty, so configmaps are `/configmaps`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    text: compact_str::CompactString,
    group_len: u16,
}

impl GroupResource {
    /// Joins a group and a plural. Neither may contain `/`: both come from validated API names.
    pub fn new(group: &str, resource: &str) -> Self {
        debug_assert!(
            !group.contains('/') && !resource.contains('/'),
            "a group or resource with a slash"
        );
        let mut text = compact_str::CompactString::with_capacity(group.len() + 1 + resource.len());
        text.push_str(group);
        text.push('/');
        text.push_str(resource);
        Self {
            text,
            group_len: u16::try_from(group.len()).expect("API group names are at most 253 bytes"),
        }
    }

    pub fn group(&self) -> &str {
        &self.text[..usize::from(self.group_len)]
    }

    pub fn resource(&self) -> &str {
        &self.text[usize::from(self.group_len) + 1..]
    }

    /// `group/resource`, as it stands inside stored keys.
    pub fn as_key(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for GroupResource {
    /// Upstream's form, as in error messages: `configmaps`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            "" => f.write_str(self.resource()),
            group => write!(f, "{}.{}", self.resource(), group),
        }
    }
}

impl fmt::Debug for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_texts_round_trip() {
        let core = GroupResource::new("", "configmaps");
        assert_eq!(
            (core.group(), core.resource(), core.as_key()),
            ("", "configmaps", "/configmaps")
        );
        assert_eq!(core.to_string(), "configmaps");
        let apps = GroupResource::new("apps", "deployments");
        assert_eq!(
            (apps.group(), apps.resource(), apps.as_key()),
            ("apps", "deployments", "apps/deployments")
        );
        assert_eq!(apps.to_string(), "deployments.apps");
    }
}
