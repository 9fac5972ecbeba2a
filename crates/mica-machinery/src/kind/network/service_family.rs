//! Which families of addresses a service has. This server has one, so that only services without an address have both.
//!
//! Upstream settles this before anything else is looked at, so that what is wrong here is all that a client is told.

use serde_json::{Value, json};

use super::service::{is_external, r#type};
use super::service_validate::validate_cluster_ips;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{is_set, present, strings};
use crate::object;

const POLICY: [&str; 2] = ["spec", "ipFamilyPolicy"];
const FAMILIES: [&str; 2] = ["spec", "ipFamilies"];
const ADDRESSES: [&str; 2] = ["spec", "clusterIPs"];
const OURS: &str = "IPv4";
const OTHER: &str = "IPv6";
const SINGLE: &str = "SingleStack";

/// What is settled.
struct Settled {
    policy: String,
    families: Vec<String>,
    addresses: Vec<String>,
}

/// Fills in the families and the policy. What is wrong with them is all that is said of a service.
pub fn settle(service: &mut Value, old: Option<&Value>) -> ErrorList {
    match settled(service, old) {
        Ok(None) => {}
        Ok(Some(settled)) => {
            object::set(service, &POLICY, settled.policy);
            object::set(service, &FAMILIES, settled.families);
            if !settled.addresses.is_empty() {
                object::set(service, &ADDRESSES, settled.addresses);
            }
        }
        Err(errors) => return errors,
    }
    ErrorList::new()
}

fn settled(service: &Value, old: Option<&Value>) -> Result<Option<Settled>, ErrorList> {
    if is_external(service) || old.is_some_and(|old| is_kept(service, old)) {
        return Ok(None);
    }
    let selects = object::map(service, &["spec", "selector"]).is_some_and(|selector| !selector.is_empty());
    let free = object::string(service, &["spec", "clusterIP"]) == "None" && !selects;
    let mut service = service.clone();
    if !is_set(&service, &POLICY) {
        let default = if free { "RequireDualStack" } else { SINGLE };
        let before = old.and_then(|old| present(old, &POLICY)).cloned();
        object::set(&mut service, &POLICY, before.unwrap_or_else(|| json!(default)));
    }
    let mut errors = ErrorList::new();
    validate_cluster_ips(&service, old, &Path::new("spec"), &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let owned = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
    let mut settled = Settled {
        policy: object::string(&service, &POLICY).to_owned(),
        families: owned(strings(&service, &FAMILIES)),
        addresses: owned(strings(&service, &ADDRESSES)),
    };
    settled.compare(old, &mut errors);
    settled.infer(&mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    if settled.families.is_empty() {
        settled.families.push(OURS.to_owned());
    }
    if free {
        if settled.families.len() < 2 && settled.policy != SINGLE {
            let other = if settled.families[0] == OURS { OTHER } else { OURS };
            settled.families.push(other.to_owned());
        }
        return Ok(Some(settled));
    }
    settled.check_served(&mut errors);
    if errors.is_empty() {
        Ok(Some(settled))
    } else {
        Err(errors)
    }
}

/// Whoever prefers two families keeps what there was, whatever the server has now.
fn is_kept(service: &Value, old: &Value) -> bool {
    let prefers = |service| object::string(service, &POLICY) == "PreferDualStack";
    let same = |at: &[&str]| strings(service, at) == strings(old, at);
    prefers(service)
        && (prefers(old) || !is_set(old, &POLICY))
        && r#type(service) == r#type(old)
        && ["ClusterIP", "NodePort", "LoadBalancer"].contains(&r#type(service))
        && same(&ADDRESSES)
        && same(&FAMILIES)
}

impl Settled {
    fn refuse(&self, detail: &str) -> Error {
        let path = Path::new("spec").child("ipFamilyPolicy");
        Error::invalid(&path, self.policy.as_str(), detail)
    }

    /// A second address or family goes only by the policy.
    fn compare(&mut self, old: Option<&Value>, errors: &mut ErrorList) {
        if let Some(old) = old {
            for (now, at, what) in [
                (&mut self.addresses, ADDRESSES, "cluster IP"),
                (&mut self.families, FAMILIES, "IP family"),
            ] {
                let before = strings(old, &at);
                if self.policy == SINGLE {
                    if *now == before {
                        now.truncate(1);
                    }
                } else if !now.is_empty() && now.len() < before.len() {
                    let path = Path::new("spec").child("ipFamilyPolicy");
                    let detail = format!("must be 'SingleStack' to release the secondary {what}");
                    errors.push(Error::invalid(&path, self.policy.as_str(), detail));
                }
            }
        }
        for (now, what) in [(&self.addresses, "cluster IPs"), (&self.families, "IP families")] {
            if self.policy == SINGLE && now.len() == 2 {
                let detail =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(self.refuse(&detail));
            }
        }
    }

    /// An address tells its family.
    fn infer(&mut self, errors: &mut ErrorList) {
        let addresses = self.addresses.iter().enumerate();
        for (i, address) in addresses.take_while(|(_, address)| *address != "None") {
            if i < self.families.len() {
                continue;
            }
            if address.contains(':') {
                let path = Path::new("spec").child("clusterIPs").index(i);
                let detail = format!("{OTHER} is not configured on this cluster");
                errors.push(Error::invalid(&path, self.addresses.clone(), detail));
            } else {
                self.families.push(OURS.to_owned());
            }
        }
    }

    fn check_served(&self, errors: &mut ErrorList) {
        if self.policy == "RequireDualStack" {
            errors.push(self.refuse("this cluster is not configured for dual-stack services"));
        }
        for (i, family) in self.families.iter().enumerate().filter(|(_, family)| *family != OURS) {
            let path = Path::new("spec").child("ipFamilies").index(i);
            errors.push(Error::invalid(&path, family.as_str(), "not configured on this cluster"));
        }
    }
}
