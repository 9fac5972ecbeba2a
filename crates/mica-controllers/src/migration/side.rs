//! What the servers say of a plane.

use mica_api::control_plane::{DECOMMISSIONED_ANNOTATION, Mode};
use serde_json::Value;

use super::plan::{Forward, Holds, Leads, Requests, Side};
use super::{Case, Owner};
use crate::api::{Absent as _, Refusal};
use crate::control_plane::Home;
use crate::route::HOSTS;

/// What [`DECOMMISSIONED_ANNOTATION`] says of a Plane that has nothing any more, and of one that never had anything and holds
/// the name for a plane that is to be made elsewhere.
pub const DECOMMISSIONED: &str = "true";
pub const RESERVED: &str = "reserved";

/// A plane as its server has it.
#[derive(Clone)]
pub struct Half {
    pub home: Option<Home>,
    /// The Plane object, if there is one.
    pub plane: Option<Value>,
    pub side: Side,
}

impl Half {
    /// There is nobody to ask.
    pub fn without(side: Side) -> Self {
        Self {
            home: None,
            plane: None,
            side,
        }
    }

    /// Asks a server. What it does not answer is in the error.
    pub async fn look(case: &Case<'_>, home: &Home, mode: Mode) -> Result<Self, Refusal> {
        let path = Home::plane_object(case.cluster_path);
        let plane = home.api.get(&path).await.or_absent()?;
        let mut side = match &plane {
            None => Side::Absent,
            Some(plane) => match (case.owner)(plane, mode) {
                Owner::Us => read(plane),
                Owner::Other(holder) => Side::Taken(holder),
            },
        };
        if side == Side::Arriving(None) {
            let come = home.api.get(&format!("{path}/arrive")).await.or_absent()?;
            side = Side::Arriving(come.as_ref().and_then(reached));
        }
        Ok(Self {
            home: Some(home.clone()),
            plane,
            side,
        })
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }

    /// The hosts that it has from its control plane, as addresses and as they are noted, if it has any.
    pub fn hosts(&self) -> Option<(Value, Value)> {
        let plane = self.plane.as_ref()?;
        let noted = plane["metadata"]["annotations"].get(HOSTS)?.clone();
        Some((plane["spec"].get("addresses")?.clone(), noted))
    }

    pub fn text(&self, pointer: &str) -> &str {
        let found = self.plane.as_ref().and_then(|plane| plane.pointer(pointer));
        found.and_then(Value::as_str).unwrap_or_default()
    }
}

/// How far an answer says that a plane has come; nowhere if it is not whole.
pub fn reached(answer: &Value) -> Option<u64> {
    let revision = answer["revision"].as_str()?.parse().ok()?;
    (revision > 0).then_some(revision)
}

/// What a Plane says of itself. How far one has come that arrives, it does not.
fn read(plane: &Value) -> Side {
    if !plane["metadata"]["deletionTimestamp"].is_null() {
        return Side::Going;
    }
    match plane["spec"]["state"].as_str().unwrap_or("Active") {
        "Active" => Side::Active,
        "Arriving" => Side::Arriving(None),
        "Moving" => Side::Moving,
        "Moved" => Side::Moved(Forward {
            requests: match plane["spec"]["movedTo"]["requests"].as_str() {
                Some("Refuse") => Requests::Refuse,
                _ => Requests::Pass,
            },
            leads: Leads::There,
            holds: match plane["metadata"]["annotations"][DECOMMISSIONED_ANNOTATION].as_str() {
                Some(DECOMMISSIONED) => Holds::Nothing,
                Some(RESERVED) => Holds::Name,
                _ => Holds::Data,
            },
        }),
        state => Side::Stopped(state.to_owned()),
    }
}

/// Says of a plane that has moved whether it leads to where the other half is.
pub fn compare_address(half: &mut Half, to: &Half, cluster_path: &str) {
    let address = to.home.as_ref().map(|home| home.plane_url(cluster_path));
    let named = half.text("/spec/movedTo/server").to_owned();
    if let (Side::Moved(forward), Some(address)) = (&mut half.side, address)
        && named != address
    {
        forward.leads = Leads::Elsewhere;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn planes_say_where_they_are() {
        for (plane, side) in [
            (json!({"spec": {}}), Side::Active),
            (
                json!({"spec": {"state": "Suspended"}}),
                Side::Stopped("Suspended".to_owned()),
            ),
            (json!({"spec": {"state": "Arriving"}}), Side::Arriving(None)),
            (
                json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"state": "Active"}}),
                Side::Going,
            ),
        ] {
            assert_eq!(read(&plane), side, "{plane}");
        }
        let moved = json!({"metadata": {"annotations": {DECOMMISSIONED_ANNOTATION: "true"}},
            "spec": {"state": "Moved", "movedTo": {"server": "https://a/x", "requests": "Refuse"}}});
        let Side::Moved(forward) = read(&moved) else {
            panic!("it has moved");
        };
        assert_eq!((forward.requests, forward.holds), (Requests::Refuse, Holds::Nothing));
        let mut reserved = moved;
        reserved["metadata"]["annotations"][DECOMMISSIONED_ANNOTATION] = RESERVED.into();
        assert!(matches!(
            read(&reserved),
            Side::Moved(Forward { holds: Holds::Name, .. })
        ));
        assert_eq!(reached(&json!({"revision": "0"})), None);
        assert_eq!(reached(&json!({"revision": "12"})), Some(12));
    }
}
