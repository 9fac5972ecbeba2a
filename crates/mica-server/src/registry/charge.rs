//! Quotas: what a write takes from its namespace's quotas is stored together with it.
//!
//! The comparison on every quota that is charged makes it impossible to admit too much, whoever else writes and on whatever
//! server. A write that lost such a race is charged anew. Writes of one namespace take turns here first, so that those of
//! one server seldom lose.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use mica_api::PlaneId;
use mica_machinery::admission::Operation;
use mica_machinery::admission::quota::Charged;
use mica_machinery::managed::{self, OneVersion};
use mica_machinery::object;
use mica_store::{Compare, Write};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use super::form::pack;
use super::scan::{Extent, Scan};
use super::{Registry, stored_value};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::plane::State;
use crate::plane::side::Side;

/// How often a write is charged anew before its client is told.
pub(super) const TRIES: usize = 200;
/// Who is recorded for what is used.
const MANAGER: &str = "kube-apiserver";

/// Turns at the quotas of namespaces. An entry lives while somebody waits or writes.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<(PlaneId, String), Weak<Turn>>>);

type Turn = tokio::sync::Mutex<()>;

/// Entries from which on dead ones are looked for.
const SWEEP: usize = 256;

impl Turns {
    async fn take(&self, plane: PlaneId, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            if turns.len() >= SWEEP {
                turns.retain(|_, turn| turn.strong_count() > 0);
            }
            let known = turns.entry((plane, namespace.to_owned())).or_default();
            match known.upgrade() {
                Some(turn) => turn,
                None => {
                    let turn = Arc::new(Turn::new(()));
                    *known = Arc::downgrade(&turn);
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}

/// A write that counts, at the quotas of its namespace.
pub(super) struct Charge<'a> {
    registry: &'a Registry,
    grant: &'a Grant,
    charged: Charged<'a>,
    _turn: OwnedMutexGuard<()>,
}

impl Registry {
    /// Begins to charge a write; `None` if nothing can be charged for it.
    pub(super) async fn charge<'a>(
        &'a self,
        grant: &'a Grant,
        operation: Operation,
        object: &'a Value,
        old: Option<&'a Value>,
        now: jiff::Timestamp,
    ) -> Result<Option<Charge<'a>>, ApiError> {
        let (target, served) = (&grant.target, &grant.target.served);
        let Some(admission) = self.admission() else {
            return Ok(None);
        };
        let Some(namespace) = target.namespace.as_deref().filter(|_| served.namespaced()) else {
            return Ok(None);
        };
        let charged = Charged {
            group: served.group(),
            resource: served.plural(),
            subresource: &target.subresource,
            operation,
            object,
            old,
            now,
        };
        let skipped = grant.is_internal() || target.plane.state == State::Draining;
        if skipped || !charged.counts() || !admission.has_quotas(&target.plane).await? {
            return Ok(None);
        }
        Ok(Some(Charge {
            registry: self,
            grant,
            charged,
            _turn: self.turns.take(target.plane.id, namespace).await,
        }))
    }
}

impl Charge<'_> {
    /// What must be written along, or why the write may not be.
    pub(super) async fn side(&self) -> Result<Side, ApiError> {
        let target = &self.grant.target;
        let mut side = Side::default();
        let Some(served) = target.plane.scheme.find("", "v1", "resourcequotas").cloned() else {
            return Ok(side);
        };
        let extent = Extent::Namespace(target.namespace.as_deref().unwrap_or_default().to_owned());
        let (registry, plane) = (self.registry.clone(), target.plane.clone());
        let mut scan = Scan::of_plane(registry, plane, served.clone(), &extent, None, None);
        let (mut quotas, mut places) = (Vec::new(), Vec::new());
        while let Some((key, stored)) = scan.next().await? {
            quotas.push(stored_value(&served, &stored)?);
            places.push((key, stored.own));
        }
        let name = object::name(self.charged.object);
        let charged = self.charged.charge(&quotas);
        let charged = charged.map_err(|why| ApiError::forbidden(&target.served.name, name, &why))?;
        for ((quota, (key, revision)), used) in quotas.into_iter().zip(places).zip(charged) {
            let Some(used) = used else { continue };
            let mut new = quota.clone();
            let used: serde_json::Map<String, Value> = used
                .iter()
                .map(|(name, amount)| (name.clone(), amount.to_string().into()))
                .collect();
            object::set(&mut new, &["status", "used"], used);
            let write = managed::Write {
                manager: MANAGER,
                api_version: &served.api_version,
                subresource: "status",
                time: self.charged.now,
                schema: served.merge_type(),
                reset: &managed::Set::of_fields(served.strategy().reset_fields("status")),
                versions: &OneVersion,
            };
            managed::update(Some(&quota), &mut new, managed::Request::Usual, &write);
            side.quotas.push(Compare::Unchanged(key.clone(), revision));
            side.writes.push(Write::Put {
                key,
                value: pack(&served, &mut new),
                ttl: None,
            });
        }
        Ok(side)
    }
}
