//! What a ResourceClaim counts for in quotas: itself, and the devices that it may get of each class.

use serde_json::Value;

use super::limit::{Amounts, add, raise};
use super::quota::count;
use crate::object;
use crate::quantity::Quantity;

pub(super) const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
/// What follows the name of a class.
pub(super) const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// What a request for all devices counts for: no claim gets more.
const MOST_DEVICES: i64 = 32;

pub(super) fn usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([(CLAIMS.to_owned(), count(1))]);
    for request in object::list(claim, &["spec", "devices", "requests"]) {
        // Only one of these is chosen: the worst case of each class counts.
        let mut most = Amounts::new();
        let choices = object::list(request, &["firstAvailable"]);
        let exactly = object::get(request, &["exactly"]);
        for one in choices.iter().chain(exactly) {
            raise(&mut most, &Amounts::from([devices(one)]));
        }
        add(&mut usage, &most);
    }
    usage
}

fn devices(request: &Value) -> (String, Quantity) {
    let number = match object::string(request, &["allocationMode"]) {
        "ExactCount" => object::int(request, &["count"]).unwrap_or_default(),
        "All" => MOST_DEVICES,
        _ => 0,
    };
    let class = object::string(request, &["deviceClassName"]);
    (format!("{class}{DEVICES}"), count(number))
}
