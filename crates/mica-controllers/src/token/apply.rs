//! Deletes a Secret that is as it was found.

use super::Tokens;
use crate::api::{Absent as _, Propagation, Refusal};
use crate::meta::Meta;
use crate::place::{self, Place};

impl Tokens {
    pub(super) async fn apply(&self, place: &Place, namespace: &str, secret: &Meta) -> Result<(), Refusal> {
        let path = place::object(place, "v1", "secrets", Some(namespace), &secret.name);
        let deleted = self.api.delete(&path, secret, Propagation::Background).await;
        deleted.or_absent().map(drop)
    }
}
