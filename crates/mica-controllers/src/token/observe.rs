//! An account, if it is there, and the Secrets of its namespace that hold tokens.

use compact_str::CompactString;

use super::Tokens;
use crate::api::{Absent as _, Refusal};
use crate::meta::Meta;
use crate::place::{self, Place, query_value};

const TYPE: &str = "kubernetes.io/service-account-token";

pub struct Found {
    /// The uid of the account, if it is there.
    pub account: Option<CompactString>,
    pub secrets: Vec<Meta>,
}

impl Tokens {
    pub(super) async fn observe(&self, place: &Place, namespace: &str, account: &str) -> Result<Found, Refusal> {
        // First the secrets: an account that comes meanwhile saves them.
        let path = place::collection(place, "v1", "secrets", Some(namespace));
        let query = format!("fieldSelector={}", query_value(&format!("type={TYPE}")));
        let secrets = self.api.list_metadata(&path, &query).await.or_absent()?;
        let secrets = secrets.map(|listed| listed.items).unwrap_or_default();
        let path = place::object(place, "v1", "serviceaccounts", Some(namespace), account);
        let account = self.api.metadata(&path).await.or_absent()?.map(|meta| meta.uid);
        Ok(Found {
            account,
            secrets: secrets.into_iter().map(|partial| partial.metadata).collect(),
        })
    }
}
