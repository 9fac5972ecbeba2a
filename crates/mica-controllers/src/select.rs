//! Which controllers run: `--controllers` as kube-controller-manager has it.

use std::fmt;

/// The word for all controllers that run control planes.
const OPERATOR: &str = "control-plane";

/// A controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    Namespace,
    Garbage,
    Quota,
    Account,
    RootCa,
    Token,
    Aggregation,
    Project,
    Organization,
    Membership,
    ControlPlane,
    ControlPlaneRegistration,
    ControlPlaneEndpoint,
    ControlPlaneClass,
}

impl Name {
    pub const ALL: [Self; 14] = [
        Self::Namespace,
        Self::Garbage,
        Self::Quota,
        Self::Account,
        Self::RootCa,
        Self::Token,
        Self::Aggregation,
        Self::Project,
        Self::Organization,
        Self::Membership,
        Self::ControlPlane,
        Self::ControlPlaneRegistration,
        Self::ControlPlaneEndpoint,
        Self::ControlPlaneClass,
    ];

    /// What runs control planes: chosen together by one word.
    const OPERATOR: [Self; 4] = [
        Self::ControlPlane,
        Self::ControlPlaneRegistration,
        Self::ControlPlaneEndpoint,
        Self::ControlPlaneClass,
    ];

    /// Upstream's name.
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// Upstream's name, and its old one.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Namespace => ("namespace-controller", "namespace"),
            Self::Garbage => ("garbage-collector-controller", "garbagecollector"),
            Self::Quota => ("resourcequota-controller", "resourcequota"),
            Self::Account => ("serviceaccount-controller", "serviceaccount"),
            Self::RootCa => ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
            Self::Token => ("serviceaccount-token-controller", "serviceaccount-token"),
            Self::Aggregation => ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
            Self::Project => ("project-controller", "project"),
            Self::Organization => ("organization-controller", "organization"),
            Self::Membership => ("organization-membership-controller", "organization-membership"),
            Self::ControlPlane => ("control-plane-controller", "controlplane"),
            Self::ControlPlaneRegistration => ("control-plane-registration-controller", "control-plane-registration"),
            Self::ControlPlaneEndpoint => ("control-plane-endpoint-controller", "control-plane-endpoint"),
            Self::ControlPlaneClass => ("control-plane-class-controller", "control-plane-class"),
        }
    }

    /// Those that a word means: one, or all that go together.
    fn parse(text: &str) -> Vec<Self> {
        if text == OPERATOR {
            return Self::OPERATOR.to_vec();
        }
        let means = |name: &Self| name.names().0 == text || name.names().1 == text;
        Self::ALL.into_iter().filter(means).collect()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The controllers that run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection(Vec<Name>);

impl Default for Selection {
    fn default() -> Self {
        Self(Name::ALL.to_vec())
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&names(&self.0, ","))
    }
}

/// A word of the list that means nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers: {known}", known = names(&Name::ALL, ", "))]
pub struct Unknown(String);

fn names(all: &[Name], between: &str) -> String {
    let names: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
    names.join(between)
}

impl Selection {
    /// `*` is all of them, `foo` the one of that name, `-foo` all but that one, `-*` none. What is said of one counts more
    /// than what is said of all, wherever it stands.
    pub fn parse<T: AsRef<str>>(words: &[T]) -> Result<Self, Unknown> {
        let mut all = false;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for word in words.iter().map(AsRef::as_ref) {
            let known = |text: &str| match Name::parse(text) {
                none if none.is_empty() => Err(Unknown(word.to_owned())),
                some => Ok(some),
            };
            match (word, word.strip_prefix('-')) {
                ("*", _) => all = true,
                (_, Some("*")) => all = false,
                (_, Some(text)) => without.extend(known(text)?),
                (text, None) => with.extend(known(text)?),
            }
        }
        let chosen = |name: &Name| with.contains(name) || (all && !without.contains(name));
        Ok(Self(Name::ALL.into_iter().filter(chosen).collect()))
    }

    pub fn has(&self, name: Name) -> bool {
        self.0.contains(&name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: &[Name]) {
        assert_eq!(Selection::parse(words), Ok(Selection(expected.to_vec())), "{words:?}");
    }

    #[test]
    fn controllers_are_chosen_as_upstream_chooses() {
        check(&["*"], &Name::ALL);
        check(&[], &[]);
        check(&["-*"], &[]);
        check(&["namespace"], &[Name::Namespace]);
        check(&["namespace-controller", "-*"], &[Name::Namespace]);
        let all_but = Name::ALL.into_iter().filter(|name| *name != Name::Garbage);
        check(&["-garbagecollector", "*"], &all_but.collect::<Vec<_>>());
        check(&["control-plane"], &Name::OPERATOR);
        check(&["control-plane-class"], &[Name::ControlPlaneClass]);
        let without_operator = Name::ALL.into_iter().filter(|name| !Name::OPERATOR.contains(name));
        check(&["*", "-control-plane"], &without_operator.collect::<Vec<_>>());
        let unknown = Selection::parse(&["*", "-nodes"]).unwrap_err().to_string();
        assert!(unknown.starts_with("\"-nodes\" is not in the list of known controllers: namespace-controller, "));
    }
}
