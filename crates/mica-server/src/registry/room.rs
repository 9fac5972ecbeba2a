//! What writes take of their plane's budgets of objects and bytes.

use mica_store::Write;

use super::{Entry, Registry};
use crate::authz::{Grant, Target};
use crate::budget::stored::{Change, Room};
use crate::error::ApiError;

impl Registry {
    /// Takes room for a value at a place, until this is dropped. The server's own writes need none.
    pub(super) async fn room(&self, grant: &Grant, entry: &Entry, value: &[u8]) -> Result<Option<Room>, ApiError> {
        match &self.holdings {
            Some(holdings) if !grant.is_internal() => {
                let change = change(entry, Some(value));
                Box::pin(holdings.take(&grant.target, change)).await
            }
            _ => Ok(None),
        }
    }

    /// A write is committed.
    pub(super) fn settle(&self, target: &Target, change: Change) {
        if let Some(holdings) = &self.holdings {
            holdings.settle(target.plane.id, change);
        }
    }
}

/// How a write changes what its plane holds.
pub(super) fn change_of(entry: &Entry, write: &Write) -> Change {
    match write {
        Write::Put { value, .. } => change(entry, Some(value)),
        Write::Delete { .. } | Write::DropPlane(_) => change(entry, None),
    }
}

fn change(entry: &Entry, value: Option<&[u8]>) -> Change {
    let key = entry.key.as_str().len();
    let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let after = value.map_or(0, |value| signed(key + value.len()));
    let before = match (entry.own, &entry.stored) {
        (None, _) => 0,
        (Some(_), Some(stored)) => signed(key + stored.stored_len()),
        // A mark that something of the base layer is gone.
        (Some(_), None) => signed(key),
    };
    Change {
        objects: i64::from(value.is_some()) - i64::from(entry.own.is_some()),
        bytes: after - before,
    }
}
