//! Names that are made of other names.

use sha2::{Digest as _, Sha256};

/// The longest name of a namespace or of a label's value.
const LONGEST: usize = 63;

/// The namespace of the management plane that holds what belongs to a control plane.
pub fn management_namespace(control_plane: &str) -> String {
    let whole = format!("kplane-cp-{control_plane}");
    if whole.len() <= LONGEST {
        return whole;
    }
    format!("kplane-cp-{}-{}", cut(control_plane, 40), digest(control_plane))
}

/// The Secret with a control plane's kubeconfigs, in its management namespace.
pub fn kubeconfig_secret(control_plane: &str) -> String {
    let whole = format!("controlplane-{control_plane}-kubeconfig");
    if whole.len() <= LONGEST {
        return whole;
    }
    format!("cp-{}-kubeconfig-{}", cut(control_plane, 30), digest(control_plane))
}

/// A control plane's name as the value of a label, which is shorter than names may be.
pub fn label_value(control_plane: &str) -> String {
    if control_plane.len() <= LONGEST {
        return control_plane.to_owned();
    }
    format!("{}-{}", cut(control_plane, 40), digest(control_plane))
}

/// The ControlPlaneEndpoint that the gateway of a class makes for a control plane.
pub fn gateway_endpoint(control_plane: &str) -> String {
    format!("{control_plane}-endpoint")
}

/// The first characters. Names are ASCII; what is not cannot be one, and is not cut inside a character.
fn cut(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name)
}

fn digest(name: &str) -> String {
    let hash = Sha256::digest(name.as_bytes());
    hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two names are of one service: `Controllers` and `controllers` are, in what is well known and in what is not.
pub fn same_service(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether a service can have this name: letters, digits and inner dashes, 63 at most.
pub fn service_is_valid(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= LONGEST
        && bytes.iter().copied().all(inner)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_told_apart_by_a_hash() {
        assert_eq!(management_namespace("a"), "kplane-cp-a");
        assert_eq!(kubeconfig_secret("a"), "controlplane-a-kubeconfig");
        let long = "x".repeat(63);
        let (namespace, secret) = (management_namespace(&long), kubeconfig_secret(&long));
        assert!(namespace.starts_with(&format!("kplane-cp-{}-", "x".repeat(40))) && namespace.len() <= LONGEST);
        assert!(secret.starts_with(&format!("cp-{}-kubeconfig-", "x".repeat(30))) && secret.len() <= LONGEST);
        let other = format!("{}y", "x".repeat(62));
        assert_ne!(management_namespace(&other), namespace);
        assert_ne!(kubeconfig_secret(&other), secret);
    }

    #[test]
    fn services_are_words_in_either_spelling() {
        assert!(same_service("Controllers", "controllers") && !same_service("scheduler", "workloads"));
        for (name, valid) in [
            ("controllers", true),
            ("Workloads", true),
            ("my-service2", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("a_b", false),
            ("a b", false),
        ] {
            assert_eq!(service_is_valid(name), valid, "{name:?}");
        }
        assert!(service_is_valid(&"a".repeat(63)) && !service_is_valid(&"a".repeat(64)));
    }
}
