//! What every namespace has from its first moment on: the service account `default`, and the CA in `kube-root-ca.crt`.
//!
//! Watches namespaces, and the object itself in them: it comes back when somebody deletes it, and what it says is set right.
//! Namespaces that a plane is born with have both already.

mod apply;
mod observe;
mod plan;

use async_trait::async_trait;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::echo::Echoes;
use crate::engine::{self, Controller};
use crate::meta::{Notice, Seen};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 16;

/// An object that is in every namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Companion {
    Account,
    /// The CA, in PEM.
    RootCa(String),
}

impl Companion {
    fn resource(&self) -> &'static str {
        match self {
            Self::Account => "serviceaccounts",
            Self::RootCa(_) => "configmaps",
        }
    }

    fn object_name(&self) -> &'static str {
        match self {
            Self::Account => "default",
            Self::RootCa(_) => "kube-root-ca.crt",
        }
    }
}

pub struct Companions {
    api: Api,
    companion: Companion,
    queue: Queue,
    echoes: Echoes,
}

impl Companions {
    pub fn new(api: Api, companion: Companion) -> Self {
        Self {
            api,
            companion,
            queue: engine::queue(),
            echoes: Echoes::default(),
        }
    }
}

#[async_trait]
impl Controller for Companions {
    fn name(&self) -> Name {
        match self.companion {
            Companion::Account => Name::Account,
            Companion::RootCa(_) => Name::RootCa,
        }
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        let (object, namespace) = match &notice.seen {
            Seen::Present(object) if object.is("", "namespaces") && !object.meta.is_deleting() => {
                (object, Some(&object.meta.name))
            }
            Seen::Present(object) | Seen::Gone(object)
                if object.is("", self.companion.resource()) && object.meta.name == self.companion.object_name() =>
            {
                (object, object.meta.namespace.as_ref())
            }
            Seen::Restarted => return self.echoes.clear(),
            _ => return,
        };
        if let Some(namespace) = namespace {
            let request = Request::new(object.place.cluster().clone(), None, namespace);
            if self.echoes.is_news(&request, object) {
                self.queue.add(request, notice.priority);
            }
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let look = async {
            let (place, namespace) = (Place::of(&request.cluster), request.name.as_str());
            let present = self.observe(&place, namespace).await?;
            let plan = plan::plan(&self.companion, namespace, present.as_ref());
            self.apply(&place, namespace, plan).await?;
            Ok(Outcome::Done)
        };
        self.echoes.look(&self.queue, request, look).await
    }
}
