//! The authority of a store: it lives there, so that every server on it, and every client, trusts the same, and so that a
//! backup that is restored elsewhere is still trusted by those who hold its kubeconfigs.

use std::time::SystemTime;

use mica_api::{GroupResource, PlaneId};
use mica_store::{CommitError, Compare, Key, PlaneKeys, ReadError, Store, Txn, Write};
use serde::{Deserialize, Serialize};

use super::PkiError;
use super::authority::Authority;
use super::directory::PkiDir;

#[derive(Debug, thiserror::Error)]
pub enum SharedAuthorityError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the store could not be read")]
    Read(#[from] ReadError),
    #[error("the store did not take the authority")]
    Write(#[from] CommitError),
}

#[derive(Serialize, Deserialize)]
struct Kept {
    certificate: String,
    key: String,
}

/// The authority that the store holds, made on first use, and kept in the directory too.
///
/// A directory that already has another one is refused: its certificates would be trusted by some servers only.
pub async fn shared_authority(
    store: &dyn Store,
    directory: &PkiDir,
    name: &str,
    now: SystemTime,
) -> Result<Authority, SharedAuthorityError> {
    let authority = match read(store).await? {
        Some(authority) => authority,
        None => {
            // The directory's own goes in if there is one: a server that moves to a shared store keeps its clients.
            let own = match directory.authority()? {
                Some(own) => own,
                None => Authority::generate(name, now)?,
            };
            offer(store, own).await?
        }
    };
    directory.adopt_authority(&authority)?;
    Ok(authority)
}

async fn read(store: &dyn Store) -> Result<Option<Authority>, SharedAuthorityError> {
    let Some(record) = store.get(&key()).await? else {
        return Ok(None);
    };
    let kept: Kept = serde_json::from_slice(&record.value).map_err(PkiError::unreadable)?;
    Ok(Some(Authority::from_pem(&kept.certificate, &kept.key)?))
}

/// Puts an authority where none is. If another server was first, that one's counts.
async fn offer(store: &dyn Store, authority: Authority) -> Result<Authority, SharedAuthorityError> {
    let kept = Kept {
        certificate: authority.certificate_pem().to_owned(),
        key: authority.key_pem().to_owned(),
    };
    let value = serde_json::to_vec(&kept).expect("two strings are plain JSON").into();
    let txn = Txn {
        compares: vec![Compare::Absent(key())],
        writes: vec![Write::Put {
            key: key(),
            value,
            ttl: None,
        }],
    };
    match store.commit(txn).await {
        Ok(_) => Ok(authority),
        Err(CommitError::Conflict { .. }) => Ok(read(store).await?.unwrap_or(authority)),
        Err(error) => Err(error.into()),
    }
}

fn key() -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&GroupResource::new("mica.internal", "authorities"), None, "ca")
}

#[cfg(test)]
mod tests {
    use mica_store::MemStore;

    use super::*;

    #[tokio::test]
    async fn every_server_of_a_store_has_the_same_authority() {
        let store = MemStore::new();
        let now = SystemTime::now();
        let homes: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let dirs: Vec<_> = homes.iter().map(|home| PkiDir::open(home.path()).unwrap()).collect();
        let first = shared_authority(&store, &dirs[0], "ca", now).await.unwrap();
        let second = shared_authority(&store, &dirs[1], "ca", now).await.unwrap();
        assert_eq!(first.certificate(), second.certificate());
        dirs[2]
            .keep_authority(&Authority::generate("ca", now).unwrap())
            .unwrap();
        let refused = shared_authority(&store, &dirs[2], "ca", now).await.err().unwrap();
        assert!(refused.to_string().contains("is not the one of the store"), "{refused}");
    }

    #[tokio::test]
    async fn a_directorys_own_authority_moves_into_an_empty_store() {
        let home = tempfile::tempdir().unwrap();
        let dir = PkiDir::open(home.path()).unwrap();
        let own = Authority::generate("ca", SystemTime::now()).unwrap();
        dir.keep_authority(&own).unwrap();
        let shared = shared_authority(&MemStore::new(), &dir, "ca", SystemTime::now())
            .await
            .unwrap();
        assert_eq!(own.certificate(), shared.certificate());
    }
}
