//! Deletes the Secrets that hold tokens of a service account when the account is gone.
//!
//! A Mica server does so itself, in the request that deletes the account (`mica-server/src/registry/issue.rs`): this is for
//! other servers. Watches deletions of service accounts, and Secrets that name one.

mod apply;
mod observe;
mod plan;

use async_trait::async_trait;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::{Notice, Seen};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 4;

pub struct Tokens {
    api: Api,
    queue: Queue,
}

impl Tokens {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }
}

#[async_trait]
impl Controller for Tokens {
    fn name(&self) -> Name {
        Name::Token
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        let (object, account) = match &notice.seen {
            Seen::Gone(object) if object.is("", "serviceaccounts") => (object, Some(&object.meta.name)),
            Seen::Present(object) if object.is("", "secrets") => (object, object.meta.annotations.account.as_ref()),
            _ => return,
        };
        if let Some(account) = account {
            let request = Request::new(
                object.place.cluster().clone(),
                object.meta.namespace.as_deref(),
                account,
            );
            self.queue.add(request, notice.priority);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let (place, namespace) = (
            Place::of(&request.cluster),
            request.namespace.as_deref().unwrap_or_default(),
        );
        let found = self.observe(&place, namespace, &request.name).await?;
        for secret in plan::plan(&request.name, &found) {
            self.apply(&place, namespace, secret).await?;
        }
        Ok(Outcome::Done)
    }
}
