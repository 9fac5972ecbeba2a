//! Gives planes their hosts, keeps routes as they should be, and says so.

use mica_api::control_plane::{API_VERSION, ENDPOINTS};
use mica_api::plane::address_holder;
use serde_json::{Value, json};

use super::Routes;
use super::gateway::{Found, Routed, has, is_of};
use super::plan::{self, Observed, Verdict};
use crate::api::Refusal;
use crate::control_plane::Home;
use crate::place::{self, Place};
use crate::{endpoint, status};

/// How often a host is tried for whose holder changes meanwhile. The last holder is waited for in any case.
const CLAIM_TRIES: usize = 4;

impl Routes {
    /// Keeps the endpoint and the route of a control plane whose class has a Gateway.
    pub(super) async fn keep_gateway(&self, observed: &Observed) -> Result<Routed, Refusal> {
        let Some((wanted, found)) = &observed.gateway else {
            return Ok(Routed::NotAsked);
        };
        let endpoints = place::collection(&Place::root(), API_VERSION, ENDPOINTS, None);
        match &observed.endpoint {
            None => drop(self.api.create(&endpoints, &wanted.endpoint).await?),
            Some(present) if !is_of(present, &observed.control_plane) => return Ok(Routed::NameTaken),
            Some(present) if has(&present["spec"], &wanted.endpoint["spec"]) => {}
            Some(_) => {
                let path = format!("{endpoints}/{}", wanted.endpoint_name());
                let spec = json!({"spec": wanted.endpoint["spec"]});
                self.api.merge(&path, &spec).await?;
            }
        }
        // A route that it had leads on to who says where the plane is.
        if observed.own.is_some() {
            return Ok(Routed::Away);
        }
        let routed = match found {
            Found::NotServed => {
                self.unserved.lock().insert(observed.name().into());
                Ok(Value::Null)
            }
            Found::Absent => self.api.create(&wanted.routes_path(), &wanted.route).await,
            Found::Present(present) if has(&present["spec"], &wanted.route["spec"]) => Ok(Value::Null),
            Found::Present(_) => {
                let spec = json!({"spec": wanted.route["spec"]});
                self.api.merge(&wanted.route_path(), &spec).await
            }
        };
        let routed = match routed {
            Ok(_) if *found == Found::NotServed => Routed::NotServed,
            Ok(_) => Routed::Yes,
            Err(refusal) if (400..500).contains(&refusal.code()) && !refusal.is_conflict() => {
                Routed::Refused(refusal.to_string())
            }
            Err(refusal) => return Err(refusal),
        };
        Ok(routed)
    }

    /// Gives the plane the hosts that it should have, and takes those that it should not. The shared server says who has a
    /// host, wherever planes live; the one that a plane lives on serves it.
    pub(super) async fn keep_hosts(&self, observed: &Observed, own: Option<&Home>) -> Result<Vec<Verdict>, Refusal> {
        let Some(plane) = &observed.plane else {
            return Ok(Vec::new());
        };
        let wanted = plan::hosts(observed);
        let verdicts = self.keep(&self.home, plane, &wanted, observed.name()).await?;
        let (Some(home), Some(plane)) = (own, &observed.own) else {
            return Ok(verdicts);
        };
        let (mut held, mut all) = (Vec::new(), Vec::new());
        for verdict in verdicts {
            match verdict {
                Verdict::Held(host) => held.push(host),
                other => all.push(other),
            }
        }
        all.extend(self.keep(home, plane, &held, observed.name()).await?);
        Ok(all)
    }

    /// Has a Plane of a server have hosts, and no others of its control plane's.
    async fn keep(&self, home: &Home, plane: &Value, wanted: &[String], whose: &str) -> Result<Vec<Verdict>, Refusal> {
        let claims = plan::claims(plane, wanted);
        let name = plane["metadata"]["name"].as_str().unwrap_or_default();
        let path = Home::plane_object(name);
        let mut verdicts: Vec<Verdict> = claims.held.into_iter().map(Verdict::Held).collect();
        let mut plane = plane.clone();
        if !claims.drop.is_empty() {
            let patch = plan::patch(&plane, &claims.drop, None);
            plane = home.api.merge(&path, &patch).await?;
            self.let_go(name);
        }
        // Each by itself: one that another plane has is no reason to go without the others.
        for host in claims.add {
            let patch = plan::patch(&plane, &[], Some(&host));
            let verdict = match self.claim(home, (&path, &patch), host, whose).await? {
                Ok((host, after)) => {
                    plane = after;
                    Verdict::Held(host)
                }
                Err(verdict) => verdict,
            };
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    /// Tries to give a plane a host.
    async fn claim(
        &self,
        home: &Home,
        (path, patch): (&str, &Value),
        host: String,
        control_plane: &str,
    ) -> Result<Result<(String, Value), Verdict>, Refusal> {
        let mut waits_for = None;
        for _ in 0..CLAIM_TRIES {
            let refusal = match home.api.merge(path, patch).await {
                Ok(after) => return Ok(Ok((host, after))),
                Err(refusal) => refusal,
            };
            let message = refusal.to_string();
            let Some(holder) = address_holder(&message).map(str::to_owned) else {
                return match refusal.code() {
                    422 | 403 => Ok(Err(Verdict::Refused { host, message })),
                    _ => Err(refusal),
                };
            };
            if waits_for.as_ref() == Some(&holder) {
                return Ok(Err(Verdict::Taken { host, holder }));
            }
            // Noted before the last try: if the holder lets go after it, this is looked at again.
            self.waiting
                .lock()
                .entry(holder.as_str().into())
                .or_default()
                .insert(control_plane.into());
            waits_for = Some(holder);
        }
        let holder = waits_for.unwrap_or_default();
        Ok(Err(Verdict::Taken { host, holder }))
    }

    /// Says on the endpoint where its host leads.
    pub(super) async fn tell(&self, observed: &Observed, status: &Value) -> Result<(), Refusal> {
        let Some(endpoint) = &observed.endpoint else {
            return Ok(());
        };
        let told = endpoint::told(&endpoint["status"], status);
        status::write(&self.api, endpoint::COMPONENT, ENDPOINTS, endpoint, status, &told).await
    }
}
