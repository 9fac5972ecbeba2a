//! Delete and deletecollection: an object goes at once, or is marked and goes when nothing holds it any more.

use futures::{StreamExt, TryStreamExt, stream};
use mica_machinery::kind::core::namespace;
use mica_machinery::kind::extension::definition;
use mica_machinery::meta::{self, DeleteOptions, Deletion, Next};
use mica_machinery::object;
use mica_store::Revision;
use parking_lot::Mutex;
use serde_json::Value;

use super::form::read_back;
use super::{Entry, ListPage, Registry, check_state, stored_value};
use crate::admission::{Doing, Gate, Subject};
use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::options::{DryRun, ListOptions};
use crate::stored::Stored;

/// Namespaces that a plane cannot be without.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How often a deletion that lost a race is tried again.
const TRIES: usize = 100;

/// Objects of a collection deleted at once: they share the store's commits.
const WORKERS: usize = 16;

/// What clients are to be warned of, from deletions that may run side by side.
pub type Warnings = Mutex<Vec<String>>;

/// What a DELETE did.
pub enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Stored),
    /// It is marked, and waits for its finalizers.
    Waiting(Stored),
}

impl Registry {
    pub async fn delete(&self, grant: &Grant, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.delete_warned(grant, options, &Mutex::default()).await
    }

    /// The same, and what clients are to be warned of.
    pub async fn delete_warned(
        &self,
        grant: &Grant,
        options: &DeleteOptions,
        warnings: &Warnings,
    ) -> Result<Deleted, ApiError> {
        let target = &grant.target;
        if target.served.is_namespaces() && IMMORTAL_NAMESPACES.contains(&target.object()) {
            // What was meant to be deleted may not be there at all.
            let (_, stored, shown) = self.doomed(target).await?;
            check_preconditions(target, &stored, &stored_value(&target.served, &shown)?, options)?;
            refuse_immortal(target)?;
        }
        self.delete_until_done(grant, options, warnings).await
    }

    /// The same, for namespaces that only go with their plane too.
    pub async fn delete_any(&self, grant: &Grant, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.delete_until_done(grant, options, &Mutex::default()).await
    }

    async fn delete_until_done(
        &self,
        grant: &Grant,
        options: &DeleteOptions,
        warnings: &Warnings,
    ) -> Result<Deleted, ApiError> {
        check_state(grant)?;
        let target = &grant.target;
        for _ in 0..TRIES {
            if let Some(deleted) = self.try_delete(grant, options, warnings).await? {
                if matches!(deleted, Deleted::Gone(_)) && options.dry_run.is_empty() {
                    self.drop_secrets(target).await;
                }
                return Ok(deleted);
            }
        }
        Err(ApiError::conflict(
            &target.served.name,
            target.object(),
            crate::error::MODIFIED,
        ))
    }

    /// What is to be deleted: where it is, as it is there, and as it is shown.
    async fn doomed(&self, target: &Target) -> Result<(Entry, Stored, Stored), ApiError> {
        let served = &target.served;
        let entry = self.target_entry(target).await?;
        let Some(stored) = entry.stored.clone() else {
            return Err(ApiError::not_found(&served.name, target.object()));
        };
        let shown = self
            .present(&target.plane, served, target.definition.as_ref(), stored.clone())
            .await?;
        Ok((entry, stored, shown))
    }

    /// One try. `None`: another write came between.
    async fn try_delete(
        &self,
        grant: &Grant,
        options: &DeleteOptions,
        warnings: &Warnings,
    ) -> Result<Option<Deleted>, ApiError> {
        let target = &grant.target;
        let served = &target.served;
        let dry_run = if options.dry_run.is_empty() {
            DryRun::No
        } else {
            DryRun::All
        };
        let (entry, stored, shown) = self.doomed(target).await?;
        let old = stored_value(served, &shown)?;
        check_preconditions(target, &stored, &old, options)?;
        let now = jiff::Timestamp::now();
        let (plan, begins) = plan(target, &old, options, now);
        if plan != Deletion::Pending {
            let told = self.admit_deletion(grant, options, &old).await?;
            warnings.lock().extend(told);
        }
        let along = self.along_delete(target, &old).await?;
        let (marked, next) = match plan {
            Deletion::Pending => return Ok(Some(Deleted::Waiting(shown))),
            Deletion::Now => {
                let gone = self.remove(target, &entry, &old, dry_run, along).await?;
                return Ok(gone.map(|revision| Deleted::Gone(shown.at(revision))));
            }
            Deletion::Mark { metadata, next } => (metadata, next),
        };
        let mut new = old.clone();
        new["metadata"] = marked;
        if served.is_namespaces() {
            namespace::terminate(&mut new, now);
        }
        if begins {
            definition::begin_delete(&mut new, now);
        }
        served.strategy().marked_for_deletion(&mut new, now);
        let packed = self
            .packed(&target.plane, served, target.definition.as_ref(), &mut new)
            .await?;
        if next == Next::Remove {
            let gone = self.remove(target, &entry, &old, dry_run, along).await?;
            return Ok(gone.map(|revision| Deleted::Gone(packed.at(revision))));
        }
        let unchanged = read_back(packed.value.clone(), stored.revision)?.json() == stored.json();
        if unchanged || dry_run == DryRun::All {
            return Ok(Some(Deleted::Waiting(packed.at(stored.revision))));
        }
        let side = self.side.on_update(served, &new, &old)?;
        let side = side.and(along);
        let revision = self.put(target, &entry, packed.value.clone(), side).await?;
        Ok(revision.map(|revision| Deleted::Waiting(packed.at(revision))))
    }

    /// Asks admission about a deletion, and returns what clients are to be warned of.
    async fn admit_deletion(
        &self,
        grant: &Grant,
        options: &DeleteOptions,
        old: &Value,
    ) -> Result<Vec<String>, ApiError> {
        let gate = Gate::new(self, grant, Doing::Delete(options), Subject::Resource).await?;
        gate.mutate(None, Some(old)).await?;
        let mut warnings = gate.take_warnings();
        let validated = gate.validate(None, Some(old)).await;
        validated.map_err(|error| error.warned(&warnings))?;
        warnings.extend(gate.take_warnings());
        Ok(warnings)
    }

    /// Deletes every object that a list would show, and returns them as they were. Of a list with a limit it is one page, and
    /// what is returned says where the next begins.
    pub async fn delete_collection(
        &self,
        grant: &Grant,
        list: &ListOptions,
        options: &DeleteOptions,
        warnings: &Warnings,
    ) -> Result<(ListPage, Revision), ApiError> {
        check_state(grant)?;
        let listing = self.list(grant, list).await?;
        let revision = listing.revision;
        let mut page = ListPage::default();
        let found = if list.limit > 0 {
            page = listing.page().await?;
            stream::iter(std::mem::take(&mut page.items)).map(Ok).left_stream()
        } else {
            let read = stream::try_unfold(listing, |mut listing| async move {
                Ok::<_, ApiError>(listing.next().await?.map(|found| (found, listing)))
            });
            read.right_stream()
        };
        let deleted = found.map_ok(|(key, stored)| async move {
            let object = grant.for_object(key.namespace(), key.name());
            match self.delete_warned(&object, options, warnings).await {
                // Who finds that somebody else was first answers with it all the same: it is gone, which is all that was asked.
                Err(error) if error.code() != http::StatusCode::NOT_FOUND => Err(error),
                _ => Ok((key, stored)),
            }
        });
        page.items = deleted.try_buffered(WORKERS).try_collect().await?;
        Ok((page, revision))
    }
}

/// Refuses the deletion of another object, or of another state of it, than the one that is meant.
fn check_preconditions(target: &Target, stored: &Stored, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let served = &target.served;
    let mut named = old["metadata"].clone();
    if options.resource_version == Some(stored.own.to_string()) {
        object::set(&mut named, &["resourceVersion"], stored.own.to_string());
    }
    let Some(unmet) = meta::unmet_precondition(&named, options) else {
        return Ok(());
    };
    // Those that empty themselves first look for themselves, with other words.
    let looks_itself = served.is_namespaces() || served.is_definitions();
    Err(if looks_itself {
        ApiError::conflict(&served.name, target.object(), &unmet.of_itself())
    } else {
        ApiError::precondition_failed(served.group(), served.kind(), target.object(), &unmet.to_string())
    })
}

fn refuse_immortal(target: &Target) -> Result<(), ApiError> {
    if target.served.is_namespaces() && IMMORTAL_NAMESPACES.contains(&target.object()) {
        return Err(ApiError::forbidden(
            &target.served.name,
            target.object(),
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// What a deletion does to an object, and whether it is the first of a definition's.
fn plan(target: &Target, old: &Value, options: &DeleteOptions, now: jiff::Timestamp) -> (Deletion, bool) {
    let served = &target.served;
    let mut plan = meta::deletion_plan(
        &old["metadata"],
        options,
        served.strategy().garbage_policy(),
        |requested| served.strategy().grace(old, requested),
        now,
    );
    if served.is_namespaces() {
        plan = namespace_plan(old, plan, now);
    }
    let begins = served.is_definitions() && object::get(old, &["metadata", "deletionTimestamp"]).is_none();
    if begins {
        // A definition always waits for its instances first, and is marked in its own way below.
        plan = Deletion::Mark {
            metadata: old["metadata"].clone(),
            next: Next::Keep,
        };
    }
    (plan, begins)
}

/// A namespace is always marked first: its content has to go before it, and only finalization takes it away.
fn namespace_plan(old: &Value, plan: Deletion, now: jiff::Timestamp) -> Deletion {
    let next = if namespace::is_finalized(old) {
        Next::Remove
    } else {
        Next::Keep
    };
    let marked = object::get(old, &["metadata", "deletionTimestamp"]).is_some();
    match plan {
        Deletion::Now if next == Next::Keep || !marked => {
            let mut new = old.clone();
            namespace::terminate(&mut new, now);
            Deletion::Mark {
                metadata: new["metadata"].take(),
                next,
            }
        }
        Deletion::Mark { mut metadata, next } => {
            object::remove(&mut metadata, &["deletionGracePeriodSeconds"]);
            Deletion::Mark { metadata, next }
        }
        plan => plan,
    }
}
