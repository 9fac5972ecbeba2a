//! Which addresses planes can have: those of the server itself they cannot, and one that another has is told with its holder.

use arc_swap::ArcSwap;
use http::StatusCode;
use mica_api::GroupResource;
use mica_api::plane::address_taken;
use mica_store::{Key, Store};

use super::directory::{INTERNAL, read_record};
use crate::error::ApiError;

/// The resource of the records that say whose an address is.
pub(super) const ADDRESSES: &str = "planeaddresses";
/// What the names of records of hosts begin with.
const HOST: &str = "host:";

/// Names of the server itself. By them root is meant, and so no plane can have them.
#[derive(Default)]
pub(super) struct OwnHosts(ArcSwap<Vec<String>>);

impl OwnHosts {
    pub fn reserve(&self, hosts: Vec<String>) {
        self.0.store(hosts.into());
    }

    /// Refuses claims, by the keys of their records, that no plane can make.
    pub fn check<'a>(&self, claims: impl Iterator<Item = &'a Key>) -> Result<(), ApiError> {
        let own = self.0.load();
        let mut hosts = claims.filter_map(|key| key.name().strip_prefix(HOST));
        match hosts.find(|host| own.iter().any(|own| own == host)) {
            None => Ok(()),
            Some(host) => {
                let message = format!("host {host:?} is a name of the server itself: choose another for the plane");
                Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message))
            }
        }
    }
}

/// Who has an address, in words, if a key is that of its record.
pub(crate) async fn taken(store: &dyn Store, key: &Key) -> Result<Option<String>, ApiError> {
    if key.group_resource() != GroupResource::new(INTERNAL, ADDRESSES) {
        return Ok(None);
    }
    let Some((r#type, value)) = key.name().split_once(':') else {
        return Ok(None);
    };
    let record = store.get(key).await?;
    let holder = record.map(|record| read_record::<String>(&record)).transpose()?;
    Ok(holder.map(|holder| address_taken(r#type, value, &holder)))
}
