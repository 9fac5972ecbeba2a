//! Which objects of a kind are watched, and what of them is kept.

use std::sync::Arc;

pub(super) type Prune<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// Which objects of a kind are watched, and what of them is kept.
pub struct Select<K> {
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) prune: Option<Prune<K>>,
    pub(crate) born: Born,
}

/// Whether objects that planes are born with are reconciled, where planes are read together.
///
/// A plane of a Mica server has system namespaces, roles and the like that it never wrote. A watch of one plane shows them,
/// the watch of all planes does not: there they cost a list of each plane when it engages, and a request when it is their
/// turn, and are left out of stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Born {
    #[default]
    Include,
    Skip,
}

impl<K> Clone for Select<K> {
    fn clone(&self) -> Self {
        Self {
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            prune: self.prune.clone(),
            born: self.born,
        }
    }
}

impl<K> Default for Select<K> {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            prune: None,
            born: Born::Include,
        }
    }
}

impl<K> Select<K> {
    /// Everything, without managed fields.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only objects that this label selector selects.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that this field selector selects.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Leaves out what planes are born with, where that saves requests.
    #[must_use]
    pub fn born(mut self, born: Born) -> Self {
        self.born = born;
        self
    }

    /// Cuts off what is not needed, before an object is kept. What is kept so is not shared with other controllers.
    #[must_use]
    pub fn prune(mut self, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.prune = Some(Arc::new(prune));
        self
    }
}
