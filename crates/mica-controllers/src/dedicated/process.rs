//! Providers that run a server as a process of this machine: one task for each, started when somebody asks for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use mica_api::control_plane::{ADOPT_ANNOTATION, DeletionPolicy};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use super::etcd::{Etcd, EtcdOptions};
use super::launch;
use super::place::Place;
use super::record::{Kept, Paths, Record, write_private};
use super::storage::{Embedded, Storage};
use super::ward::{Order, Standing, Ward};
use super::{Provider, Provisioned, Refused, Retired, Wanted};
use crate::control_plane::Home;

/// How long an answer waits for a server to be found again that an earlier run of the operator left.
const GRACE: Duration = Duration::from_secs(2);

/// Runs servers as processes that outlive this one.
pub struct Process {
    place: Arc<Place>,
    storage: Arc<dyn Storage>,
    wards: Mutex<HashMap<String, Handle>>,
}

/// A server that is supervised.
struct Handle {
    orders: watch::Sender<Order>,
    standing: watch::Receiver<Standing>,
    /// The server as it was reached last, and of when the kubeconfig was.
    home: Option<(SystemTime, Home)>,
}

impl Process {
    /// Servers with data in their own directories.
    pub fn embedded(place: Arc<Place>) -> Self {
        Self::with(place, Arc::new(Embedded))
    }

    /// Servers with data in etcd.
    pub fn etcd(place: Arc<Place>, options: EtcdOptions) -> Self {
        Self::with(place, Arc::new(Etcd::new(options)))
    }

    fn with(place: Arc<Place>, storage: Arc<dyn Storage>) -> Self {
        Self {
            place,
            storage,
            wards: Mutex::default(),
        }
    }

    /// Ends every server that is supervised; each is started when somebody asks for it again.
    pub async fn halt(&self) {
        let wards: Vec<Handle> = self.wards.lock().drain().map(|(_, handle)| handle).collect();
        for handle in &wards {
            handle.orders.send_replace(Order::Halt);
        }
        for mut handle in wards {
            // An error is the end of the task, which is as good.
            let _ = handle
                .standing
                .wait_for(|standing| matches!(standing, Standing::Over))
                .await;
        }
    }

    /// Gives an order, to a new task if there is none. Returns how the server stands.
    async fn order(&self, name: &str, order: Order) -> Result<Standing, Refused> {
        let (mut standing, looks) = self.give(name, order.clone())?;
        if looks == Looks::ForProcess {
            // It is most likely well: whoever asks need not see it in doubt. If it takes longer, it is.
            let known = standing.wait_for(|standing| !matches!(standing, Standing::Pending(_)));
            let _ = tokio::time::timeout(GRACE, known).await;
        }
        let standing = standing.borrow().clone();
        Ok(standing.after(&order))
    }

    fn give(&self, name: &str, order: Order) -> Result<(watch::Receiver<Standing>, Looks), Refused> {
        let paths = self.place.paths(name)?;
        self.place.hold()?;
        let mut wards = self.wards.lock();
        wards.retain(|_, handle| !matches!(*handle.standing.borrow(), Standing::Over));
        if let Some(handle) = wards.get(name) {
            let refused = matches!(
                *handle.standing.borrow(),
                Standing::Refused(_) | Standing::Running { held: Some(_), .. }
            );
            handle.orders.send_if_modified(|current| {
                // Somebody who asks again after a refusal wants it tried again.
                let other = *current != order || refused;
                *current = order;
                other
            });
            return Ok((handle.standing.clone(), Looks::Nowhere));
        }
        if let Order::Run(wanted) = &order {
            self.adopt(wanted, &paths)?;
        }
        let record = self.record(&paths)?;
        if let Some(other) = record.as_ref().filter(|record| record.provider != self.kind()) {
            return Err(Refused::provider(format!(
                "its server is one of provider {}: move the control plane away from it first",
                other.provider
            )));
        }
        let looks = match record.as_ref().is_some_and(|record| record.process.is_some()) {
            true => Looks::ForProcess,
            false => Looks::Nowhere,
        };
        let (orders, ordered) = watch::channel(order);
        let (stands, standing) = watch::channel(Standing::Pending("the server is being looked for".to_owned()));
        let parts = (name.to_owned(), paths, record);
        let ward = Ward::new(self.place.clone(), self.storage.clone(), parts, stands);
        tokio::spawn(ward.run(ordered));
        let handle = Handle {
            orders,
            standing: standing.clone(),
            home: None,
        };
        wards.insert(name.to_owned(), handle);
        Ok((standing, looks))
    }

    /// Lets a server begin on what is kept, if that is what is wanted: under its own name or from another's, whose directory
    /// becomes this one's. What is kept for somebody else is left alone.
    fn adopt(&self, wanted: &Wanted, paths: &Paths) -> Result<(), Refused> {
        let failed = |error: std::io::Error| Refused::failed(format!("{}: {error}", paths.home.display()));
        let kept = Kept::load(paths).map_err(failed)?;
        let id = kept.as_ref().and_then(|kept| kept.plane_id.as_deref());
        match (id, wanted.adopts.as_deref()) {
            (Some(id), adopts) if adopts != Some(id) => Err(Refused::taken(format!(
                "the server of this name was retained when ControlPlane {:?} was deleted: annotate this one with \
                 {ADOPT_ANNOTATION}={id} to take it over, or give it another name",
                wanted.name
            ))),
            (None, Some(id)) if !paths.home.exists() => {
                let directory = &self.place.options.directory;
                match Kept::find(directory, self.kind(), &wanted.cluster_path, id) {
                    Some(from) => std::fs::rename(&from.home, &paths.home).map_err(failed),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn record(&self, paths: &Paths) -> Result<Option<Record>, Refused> {
        let record = Record::load(paths);
        record.map_err(|error| Refused::failed(format!("{}: {error}", paths.home.display())))
    }

    fn standing(&self, name: &str) -> Option<Standing> {
        let wards = self.wards.lock();
        let handle = wards.get(name)?;
        let standing = handle.standing.borrow().clone().after(&handle.orders.borrow());
        (!matches!(standing, Standing::Over)).then_some(standing)
    }

    async fn answer(&self, name: &str, standing: Standing) -> Result<Provisioned, Refused> {
        match standing {
            Standing::Pending(message) => Ok(Provisioned::Pending { message }),
            Standing::Over => Ok(Provisioned::Pending {
                message: "the server has just ended".to_owned(),
            }),
            Standing::Refused(answer) => Err(answer.refused),
            Standing::Running { home, version, .. } => {
                let home = self.current(name, home).await?;
                Ok(Provisioned::Running { home, version })
            }
        }
    }

    /// A server as its administrator reaches it now: it renews that certificate in time, and what is in its file counts.
    async fn current(&self, name: &str, home: Home) -> Result<Home, Refused> {
        let paths = self.place.paths(name)?;
        let modified = std::fs::metadata(paths.kubeconfig()).and_then(|found| found.modified());
        let Ok(modified) = modified else { return Ok(home) };
        let known = self.wards.lock().get(name).and_then(|handle| handle.home.clone());
        if let Some((_, known)) = known.filter(|(of, _)| *of == modified) {
            return Ok(known);
        }
        let Ok(home) = Box::pin(launch::home(&paths)).await else {
            return Ok(home);
        };
        if let Some(handle) = self.wards.lock().get_mut(name) {
            handle.home = Some((modified, home.clone()));
        }
        Ok(home)
    }
}

/// Whether a new task begins by looking for a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    ForProcess,
    Nowhere,
}

#[async_trait]
impl Provider for Process {
    fn kind(&self) -> &'static str {
        self.storage.kind()
    }

    async fn provision(&self, wanted: &Wanted) -> Result<Provisioned, Refused> {
        let standing = self.order(&wanted.name, Order::Run(wanted.clone())).await?;
        self.answer(&wanted.name, standing).await
    }

    async fn find(&self, name: &str) -> Result<Option<Provisioned>, Refused> {
        if let Some(standing) = self.standing(name) {
            return self.answer(name, standing).await.map(Some);
        }
        let paths = self.place.paths(name)?;
        match self.record(&paths)? {
            Some(record) if record.provider == self.kind() && !paths.is_retained() => {
                self.provision(&record.wanted).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn will_keep(&self, name: &str, plane_id: &str) -> Result<(), Refused> {
        let paths = self.place.paths(name)?;
        let ours = self
            .record(&paths)?
            .is_some_and(|record| record.provider == self.kind());
        if !ours {
            return Ok(());
        }
        let written = write_private(&paths.keeps(), plane_id.as_bytes());
        written.map_err(|error| Refused::failed(format!("{}: {error}", paths.home.display())))
    }

    async fn retire(&self, name: &str, policy: DeletionPolicy) -> Result<Retired, Refused> {
        let paths = self.place.paths(name)?;
        if self.standing(name).is_none() {
            let kept = paths.is_retained();
            let others = self
                .record(&paths)?
                .is_some_and(|record| record.provider != self.kind());
            if kept || others || !paths.home.exists() {
                return Ok(Retired::Done);
            }
        }
        match self.order(name, Order::Retire(policy)).await? {
            Standing::Over => Ok(Retired::Done),
            Standing::Pending(message) => Ok(Retired::Pending { message }),
            Standing::Running { .. } => Ok(Retired::Pending {
                message: "the server is being stopped".to_owned(),
            }),
            Standing::Refused(answer) => Err(answer.refused),
        }
    }

    fn held(&self, name: &str) -> Option<Refused> {
        match self.standing(name)? {
            Standing::Running { held, .. } => held.map(|answer| answer.refused),
            _ => None,
        }
    }

    fn changes(&self) -> broadcast::Receiver<String> {
        self.place.changes.subscribe()
    }
}
