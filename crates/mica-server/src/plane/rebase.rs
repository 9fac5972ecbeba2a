//! Moving planes to the newest base layer.
//!
//! A plane keeps the layer it was born with. Where a newer layer has something else, and the plane has nothing of its own, a
//! small mark among the plane's records says which layer counts: an ordinary write, with its event, at a revision of its own,
//! so that watches, resumed watches and lists of older revisions need nothing special. `docs/design/base-layer.md` says why.
//!
//! What users changed or deleted stays as it is. A move that was interrupted is finished by doing it again.

use http::{Response, StatusCode};
use mica_store::{CommitError, Compare, Key, Txn, Write};

use super::directory::Directory;
use super::{Plane, State};
use crate::authz::Grant;
use crate::encode::{Encoder, Include, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{Format, Output};
use crate::serve::{Call, respond};
use crate::stored::{self, Content};

/// How often one mark is tried again because its object changed meanwhile, and a move because its plane did.
const TRIES: usize = 5;

/// What a move did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// How many objects changed.
    pub objects: usize,
}

/// Answers a request to move a plane: with the Plane.
pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    call.server.directory.rebase_by_name(grant.target.object()).await?;
    let stored = call.server.registry.get(grant, "").await?;
    let media = Media {
        output: Output::JSON,
        include: Include::Metadata,
    };
    let bytes = Encoder::new(&grant.target.served, media).object(&stored)?;
    Ok(respond(
        StatusCode::CREATED,
        Format::Json.media_type(),
        Body::full(bytes),
    ))
}

impl Directory {
    /// Moves the plane of this name to the newest base layer.
    pub async fn rebase_by_name(&self, name: &str) -> Result<Moved, ApiError> {
        for _ in 1..TRIES {
            match self.rebase(&*self.by_name(name).await?).await {
                Err(error) if error.is_stale_plane() => self.forget(name),
                moved => return moved,
            }
        }
        self.rebase(&*self.by_name(name).await?).await
    }

    /// Moves a plane to the newest base layer: afterwards it has, where it has nothing of its own, what a new plane has.
    pub async fn rebase(&self, plane: &Plane) -> Result<Moved, ApiError> {
        let stays = [
            State::Draining,
            State::Restoring,
            State::Arriving,
            State::Moving,
            State::Moved,
        ];
        if stays.contains(&plane.state) {
            let message = format!(
                "control plane \"{}\" is being filled, moved or deleted: its base layer stays",
                plane.name
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "Conflict", message));
        }
        let mut objects = 0;
        self.layers().keep_newest(plane.profile, plane.context).await?;
        for (resource, rest) in plane.layers.differences() {
            let key = match rest.split_once('/') {
                Some((namespace, name)) => plane.keys().object(&resource, Some(namespace), name),
                None => plane.keys().object(&resource, None, &rest),
            };
            let mut tries = 0;
            while let Some(compare) = self.outdated(plane, &key).await? {
                let value = stored::based(&self.layers().newest(plane.profile, plane.context).id);
                let write = Write::Put {
                    key: key.clone(),
                    value,
                    ttl: None,
                };
                let compares = vec![compare, plane.fence(), plane.base_fence()];
                match self
                    .store()
                    .commit(Txn {
                        compares,
                        writes: vec![write],
                    })
                    .await
                {
                    Ok(_) => {
                        objects += 1;
                        break;
                    }
                    Err(CommitError::Conflict { compare: 0, .. }) if tries < TRIES => tries += 1,
                    Err(CommitError::Conflict { compare: 1.., .. }) => return Err(ApiError::stale_plane()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Moved { objects })
    }

    /// If a place shows what another layer has than the newest: the comparison that holds while it does.
    async fn outdated(&self, plane: &Plane, key: &Key) -> Result<Option<Compare>, ApiError> {
        let record = self.store().get(key).await?;
        let (layer, compare) = match &record {
            None => (Some(plane.base.clone()), Compare::Absent(key.clone())),
            Some(record) => match Content::read(record)? {
                Content::Based(id) => (plane.layers.get(&id), Compare::Unchanged(key.clone(), record.revision)),
                // The plane's own.
                Content::Object(_) | Content::Hidden => return Ok(None),
            },
        };
        let newest = self.layers().newest(plane.profile, plane.context);
        let same = layer.is_some_and(|layer| layer.agrees(newest, &key.group_resource(), key.rest()));
        Ok((!same).then_some(compare))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_machinery::kind::Profile;
    use mica_store::{MemStore, Store};
    use serde_json::{Value, json};

    use super::*;
    use crate::authz::{self, Target};
    use crate::options::{ListOptions, ListUse};
    use crate::registry::{Registry, stored_value};
    use crate::request::{Query, Verb};
    use crate::scheme::Schemes;

    fn map(name: &str, text: &str) -> Value {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "data": {"k": text}})
    }

    /// A server's directory that brings these ConfigMaps as its base layer.
    async fn directory(store: &Arc<dyn Store>, maps: &[Value]) -> Arc<Directory> {
        let maps = maps.to_vec();
        let schemes = Schemes::new(Profile::Generic, &[], &[]);
        Directory::open(store.clone(), schemes, Box::new(move |_, _| maps.clone()))
            .await
            .unwrap()
    }

    /// What root shows: each ConfigMap with its content and resourceVersion.
    async fn shown(store: &Arc<dyn Store>, directory: &Arc<Directory>, query: &str) -> Vec<(String, u64)> {
        let plane = directory.root();
        let served = plane.scheme.find("", "v1", "configmaps").unwrap().clone();
        let target = Target {
            plane,
            served: served.clone(),
            namespace: None,
            name: None,
            subresource: String::new().into(),
            definition: None,
            within: None,
        };
        let registry = Registry::new(
            store.clone(),
            directory.clone(),
            Arc::new(crate::registry::NoWebhooks),
            Arc::new(crate::authz::Authorizer::new(
                store.clone(),
                directory.clone(),
                crate::authz::Chain::default(),
                crate::egress::Egress::new(crate::egress::EgressOptions::default()),
                &crate::metrics::Registry::default(),
            )),
        );
        let options = ListOptions::read(&Query::parse(Some(query)), ListUse::List).unwrap();
        let mut listing = registry
            .list(&authz::system(Verb::List, target), &options)
            .await
            .unwrap();
        let mut all = Vec::new();
        while let Some((key, stored)) = listing.next().await.unwrap() {
            let text = stored_value(&served, &stored).unwrap()["data"]["k"]
                .as_str()
                .unwrap()
                .to_owned();
            all.push((format!("{}={text}", key.name()), stored.revision.0));
        }
        all
    }

    fn names(shown: &[(String, u64)]) -> Vec<&str> {
        shown.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[tokio::test]
    async fn what_is_added_changed_and_removed_shows_and_the_rest_stays() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new());
        let first = directory(&store, &[map("a", "1"), map("b", "1"), map("c", "1")]).await;
        assert_eq!(first.rebase(&first.root()).await.unwrap(), Moved { objects: 0 });
        let before = shown(&store, &first, "").await;
        let revision = store.status().await.unwrap().revision;

        let second = directory(&store, &[map("a", "1"), map("b", "2"), map("d", "2")]).await;
        assert_eq!(
            shown(&store, &second, "").await,
            before,
            "until it is moved a plane keeps its layer"
        );
        assert_eq!(second.rebase(&second.root()).await.unwrap(), Moved { objects: 3 });
        assert_eq!(second.rebase(&second.root()).await.unwrap(), Moved { objects: 0 });
        let after = shown(&store, &second, "").await;
        assert_eq!(names(&after), ["a=1", "b=2", "d=2"]);
        assert_eq!(after[0], before[0], "what did not change keeps its resourceVersion");
        assert!(
            after[1].1 > revision.0 && after[2].1 > after[1].1,
            "each change has its own"
        );
        let old = shown(
            &store,
            &second,
            &format!("resourceVersion={revision}&resourceVersionMatch=Exact"),
        )
        .await;
        assert_eq!(old, before, "an older revision shows the older layer");

        let third = directory(&store, &[map("a", "3"), map("b", "1"), map("c", "1")]).await;
        assert_eq!(third.rebase(&third.root()).await.unwrap(), Moved { objects: 4 });
        assert_eq!(names(&shown(&store, &third, "").await), ["a=3", "b=1", "c=1"]);
    }
}
