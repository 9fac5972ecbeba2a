//! Addresses of endpoints, and the kinds that keep track of services' addresses: IPAddress and ServiceCIDR.

use std::net::IpAddr;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{immutable, present, strings};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::{MetadataCheck, NameUse, internal};
use crate::names::{cidr_errors, ip_errors, parse_ip_sloppy};
use crate::object;

pub const IP_ADDRESS: Plain = Plain {
    name: name_errors,
    validate: |_, object| validate_parent(object),
    validate_update: |_, new, old| {
        let mut errors = validate_parent(new);
        let parent = object::get(new, &["spec", "parentRef"]).unwrap_or(&Value::Null);
        let shown = internal::shown(parent, "io.k8s.api.networking.v1.ParentReference");
        let path = Path::new("spec").child("parentRef");
        immutable(new, old, &["spec", "parentRef"], &path, &shown, &mut errors);
        errors
    },
    cells: |object, now| {
        let of = |field| object::string(object, &["spec", "parentRef", field]);
        let mut parent = "<none>".to_owned();
        if present(object, &["spec", "parentRef"]).is_some() {
            parent = match of("group") {
                "" => of("resource").to_lowercase(),
                group => format!("{}.{group}", of("resource")).to_lowercase(),
            };
            if !of("namespace").is_empty() {
                parent = format!("{parent}/{}", of("namespace"));
            }
            parent = format!("{parent}/{}", of("name"));
        }
        // Upstream gives an age that it has no column for.
        vec![object::name(object).into(), parent.into(), age(object, now)]
    },
    ..Plain::new("networking.k8s.io/ipaddresses", "io.k8s.api.networking.v1.IPAddress")
};

pub const SERVICE_CIDR: Plain = Plain {
    validate: |_, object| validate_ranges(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        let shown = object::get(new, &["spec", "cidrs"]).unwrap_or(&Value::Null).to_string();
        let path = Path::new("spec").child("cidrs");
        immutable(new, old, &["spec", "cidrs"], &path, &shown, &mut errors);
        errors
    },
    metadata_check: MetadataCheck::Change,
    status: Status::ApartFromMetadata,
    cells: |object, now| {
        let ranges = strings(object, &["spec", "cidrs"]).join(",");
        vec![object::name(object).into(), ranges.into(), age(object, now)]
    },
    ..Plain::new("networking.k8s.io/servicecidrs", "io.k8s.api.networking.v1.ServiceCIDR")
};

/// An address is its own name, in the one way to write it.
fn name_errors(name: &str, _use: NameUse) -> Vec<String> {
    let errors = ip_errors(&Path::default(), name);
    errors.into_iter().map(|error| error.detail).collect()
}

fn validate_parent(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("parentRef");
    let Some(parent) = present(object, &["spec", "parentRef"]) else {
        errors.push(Error::required(&path, ""));
        return errors;
    };
    for field in ["resource", "name"] {
        if object::string(parent, &[field]).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
    errors
}

fn validate_ranges(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (path, ranges) = (Path::new("spec").child("cidrs"), strings(object, &["spec", "cidrs"]));
    if ranges.is_empty() {
        errors.push(Error::required(&path, "at least one CIDR required"));
    }
    if ranges.len() > 2 {
        let shown: Vec<Value> = ranges.iter().map(|range| (*range).into()).collect();
        errors.push(Error::invalid(&path, shown, "may only hold up to 2 values"));
    }
    for (i, range) in ranges.iter().enumerate() {
        errors.extend(cidr_errors(&path.index(i), range));
    }
    errors
}

/// What no endpoint and no address from outside may be.
pub fn validate_endpoint_ip(text: &str, path: &Path, errors: &mut ErrorList) {
    let Some(address) = parse_ip_sloppy(text) else {
        errors.push(Error::invalid(path, text, "must be a valid IP address"));
        return;
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(four) => (four.is_link_local(), four.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(six) => (
            six.segments()[0] & 0xffc0 == 0xfe80,
            six.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let mut refuse = |when: bool, detail: String| {
        if when {
            errors.push(Error::invalid(path, text, detail));
        }
    };
    refuse(address.is_unspecified(), format!("may not be unspecified ({text})"));
    refuse(
        address.is_loopback(),
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
    );
    refuse(
        link_local,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned(),
    );
    refuse(
        multicast,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
    );
}
