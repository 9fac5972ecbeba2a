//! What is to be written so that a namespace has what it should. A function of what is there.

use mica_machinery::kind::bootstrap;
use mica_machinery::object;
use serde_json::{Value, json};

use super::Companion;

#[derive(PartialEq, Debug)]
pub enum Plan {
    Nothing,
    Create(Value),
    Update(Value),
}

pub fn plan(companion: &Companion, namespace: &str, present: Option<&Value>) -> Plan {
    let wanted = wanted(companion, namespace);
    let Some(present) = present else {
        return Plan::Create(wanted);
    };
    let mut right = present.clone();
    match companion {
        // Whatever else an account has is its owner's.
        Companion::Account => return Plan::Nothing,
        Companion::RootCa(_) => {
            right["data"] = wanted["data"].clone();
            object::remove(&mut right, &["binaryData"]);
            let annotations = object::map(&wanted, &["metadata", "annotations"]);
            for (name, value) in annotations.into_iter().flatten() {
                object::set(&mut right, &["metadata", "annotations", name], value.clone());
            }
        }
    }
    match right == *present {
        true => Plan::Nothing,
        false => Plan::Update(right),
    }
}

fn wanted(companion: &Companion, namespace: &str) -> Value {
    match companion {
        Companion::Account => json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": companion.object_name(), "namespace": namespace},
        }),
        Companion::RootCa(certificates) => bootstrap::root_ca_of(namespace, certificates),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_made_as_planes_are_born_with_it() {
        let made = plan(&Companion::Account, "ns", None);
        let expected =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "ns"}});
        assert_eq!(made, Plan::Create(expected));
        let made = plan(&Companion::RootCa("ca".to_owned()), "default", None);
        assert_eq!(made, Plan::Create(bootstrap::root_ca("ca").remove(0)));
    }

    #[test]
    fn an_account_is_its_owners_to_change() {
        let present = json!({"metadata": {"name": "default"}, "secrets": [{"name": "x"}]});
        assert_eq!(plan(&Companion::Account, "ns", Some(&present)), Plan::Nothing);
    }

    #[test]
    fn the_certificate_is_set_right_and_what_else_was_added_to_its_metadata_stays() {
        let ca = Companion::RootCa("ca".to_owned());
        let right = wanted(&ca, "ns");
        assert_eq!(plan(&ca, "ns", Some(&right)), Plan::Nothing);
        let mut wrong = right.clone();
        wrong["data"] = json!({"ca.crt": "other", "more": "x"});
        wrong["metadata"]["labels"] = json!({"a": "b"});
        let mut expected = right;
        expected["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(plan(&ca, "ns", Some(&wrong)), Plan::Update(expected));
    }
}
