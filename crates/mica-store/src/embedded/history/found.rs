//! Changes found by a look at every key of the range.
//!
//! Many are found at once and their values loaded page by page. Only places are kept meanwhile; if a segment was removed
//! since they were found, they are found again.

use std::collections::VecDeque;

use super::Page;
use crate::embedded::index::changes::{Found, FoundChange};
use crate::embedded::read::Damage;
use crate::key::KeyRange;
use crate::store::Revision;

/// Changes found with one look at the range. Their places take about 200 bytes each.
const SCAN: usize = 32 << 10;

#[derive(Default)]
pub(super) struct Findings {
    /// Changes not handed out yet, in order.
    changes: VecDeque<Found>,
    /// They are all there are after this revision...
    after: Revision,
    /// ...up to this one.
    complete_to: Revision,
    /// What [`crate::embedded::segment::Segments::removals`] said before they were looked for.
    removals: u64,
}

impl Findings {
    /// Fills a page with what follows a revision, and says how far it reaches. `removals` is from before the page's view
    /// was opened.
    pub(super) fn read(
        &mut self,
        page: &mut Page<'_>,
        range: &KeyRange,
        after: Revision,
        removals: u64,
    ) -> Result<Revision, Damage> {
        // Asked again after the segments were taken: if nothing was removed up to now, they are all among them.
        let outdated = self.removals != page.engine.segments.removals();
        if self.changes.is_empty() || self.after != after || outdated {
            let (changes, complete_to) = page.view.changes(range, after, SCAN)?;
            *self = Self {
                changes: changes.into(),
                after,
                complete_to: complete_to.unwrap_or(page.view.revision()),
                removals,
            };
        }
        while !page.is_full()
            && let Some(found) = self.changes.pop_front()
        {
            self.after = found.revision;
            add(page, found)?;
        }
        if self.changes.is_empty() {
            // A watch that has caught up keeps no room for the next time.
            self.changes = VecDeque::new();
            self.after = self.complete_to;
        }
        Ok(self.after)
    }
}

/// Puts a change with its values into a page.
fn add(page: &mut Page<'_>, found: Found) -> Result<(), Damage> {
    let Found { revision, change } = found;
    let (key, put, previous) = match change {
        FoundChange::Dropped(plane) => {
            page.dropped(plane, revision);
            return Ok(());
        }
        FoundChange::Put(key, entry) => {
            let previous = page.view.superseded_by(&key, revision)?;
            (key, Some(entry), previous)
        }
        FoundChange::Delete(key, entry) => (key, None, Some(entry)),
    };
    let put = put.map(|entry| page.load(&key, &entry)).transpose()?;
    let previous = previous.map(|entry| page.load(&key, &entry)).transpose()?;
    page.change(key, revision, put.map(|record| record.value), previous);
    Ok(())
}
