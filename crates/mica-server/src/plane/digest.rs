//! What a plane holds, in a few numbers: to see that two servers hold the same.
//!
//! The hash is over keys below the plane and the objects as JSON, so it depends neither on the store nor on how values are
//! hidden in it. Revisions have a hash of their own: they are equal only where they could be kept. What expires by itself is
//! left out, because it does so on each side in its own time.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use mica_store::{Key, RangeQuery, Record};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Plane, State};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::http::Body;
use crate::registry::owner::is_internal;
use crate::serve::{Call, respond};
use crate::stored::{self, Content};

/// Records read at once.
const PAGE: usize = 500;

#[derive(Default)]
struct Sum {
    objects: u64,
    content: Sha256,
    versions: Sha256,
}

impl Sum {
    fn add(&mut self, key: &Key, record: &Record) -> Result<(), ApiError> {
        let mut part = |bytes: &[u8]| {
            self.content.update((bytes.len() as u64).to_le_bytes());
            self.content.update(bytes);
        };
        part(key.rest().as_bytes());
        match Content::read(record)? {
            Content::Object(stored) => {
                part(b"object");
                part(stored.json());
            }
            Content::Hidden => part(b"hidden"),
            Content::Based(layer) => {
                part(b"based");
                part(layer.as_bytes());
            }
        }
        self.versions.update(stored::shown_revision(record).0.to_le_bytes());
        self.objects += 1;
        Ok(())
    }

    fn show(&self) -> Value {
        json!({"objects": self.objects, "hash": hex(&self.content), "versions": hex(&self.versions)})
    }
}

fn hex(hash: &Sha256) -> String {
    hash.clone()
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Answers with the digest of a plane: in all, and for each resource.
pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let name = grant.target.object();
    let plane = call.server.directory.by_name(name).await?;
    if matches!(plane.state, State::Restoring | State::Draining) {
        let why = "it is being filled or deleted";
        return Err(ApiError::conflict(&grant.target.served.name, name, why));
    }
    let body = digest(call, &plane).await?.to_string();
    Ok(respond(StatusCode::OK, "application/json", Body::full(body)))
}

async fn digest(call: &Call<'_>, plane: &Plane) -> Result<Value, ApiError> {
    let range = plane.keys().all();
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let (mut at, mut after): (_, Option<Key>) = (None, None);
    loop {
        let query = RangeQuery {
            range: &range,
            at,
            after: after.as_ref(),
            limit: PAGE,
        };
        let page = call.server.store.range(query).await?;
        at = Some(page.revision);
        for (key, record) in page.records.iter().filter(|(key, _)| !is_internal(key)) {
            let served = plane.scheme.by_storage(key.resource());
            if served.and_then(|served| served.strategy().ttl()).is_some() {
                continue;
            }
            match sums.get_mut(key.resource()) {
                Some(sum) => sum.add(key, record)?,
                None => sums.entry(key.resource().to_owned()).or_default().add(key, record)?,
            }
        }
        match page.records.last() {
            Some((key, _)) if page.more => after = Some(key.clone()),
            _ => break,
        }
        // Hashing a page takes a while: others get their turn.
        tokio::task::yield_now().await;
    }
    let (mut content, mut versions) = (Sha256::new(), Sha256::new());
    let (mut objects, mut resources) = (0, Map::new());
    for (resource, sum) in &sums {
        objects += sum.objects;
        content.update(format!("{resource}\0{}\n", hex(&sum.content)));
        versions.update(format!("{resource}\0{}\n", hex(&sum.versions)));
        resources.insert(resource.clone(), sum.show());
    }
    Ok(json!({
        "kind": "PlaneDigest", "apiVersion": "mica.dev/v1alpha1", "plane": plane.name,
        "revision": at.unwrap_or_default().to_string(),
        "objects": objects, "hash": hex(&content), "versions": hex(&versions), "resources": resources,
    }))
}
