//! Reading: single keys, pages of ranges, and which revisions can still be read.
//!
//! etcd bounds an answer by the number of records, not by bytes, so a page is asked for in chunks whose size follows what
//! the records have been like so far. All chunks of a page are read at the revision of the first.
//!
//! Ranges that do not lie in one piece (a plane, everything) are read by way of the index: its entries name, in order, the
//! pieces that make up the range, and many short pieces are read in one transaction.

use bytes::Bytes;

use super::Shared;
use super::client::{Effect, signed, unsigned};
use super::failure::Failure;
use super::layout::{Place, Span};
use super::proto::{KeyValue, RangeRequest, RangeResponse, Request, TxnRequest};
use crate::key::{Key, KeyRange};
use crate::store::{Page, RangeQuery, ReadError, Record, Revision, StoreStatus, Usage};

/// Records of the first chunk, before anything is known about their size.
const FIRST_CHUNK: usize = 100;
const MAX_CHUNK: usize = 10_000;
/// What chunks are meant to hold.
const CHUNK_BYTES: usize = 4 << 20;
/// A page ends early at this size, so that one caller cannot ask for all of memory.
const PAGE_BYTES: usize = 64 << 20;
/// Index entries read at a time.
const INDEX_CHUNK: usize = 256;
/// Pieces that one transaction reads, and records of each; longer pieces go on by themselves.
const PIECES: usize = 32;
const PIECE_RECORDS: usize = 16;
/// How often a read of the newest state starts over because it was compacted under it.
const RESTARTS: usize = 3;
/// Records that counting holds at a time.
const USAGE_PAGE: usize = 1000;

/// What a scan has collected.
struct Collected {
    records: Vec<KeyValue>,
    bytes: usize,
    wanted: usize,
}

/// Whether there is more after what was collected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    Something,
}

impl Collected {
    fn new(wanted: usize) -> Self {
        Self {
            records: Vec::new(),
            bytes: 0,
            wanted,
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.wanted || self.bytes >= PAGE_BYTES
    }

    fn push(&mut self, kv: KeyValue) {
        self.bytes += kv.key.len() + kv.value.len();
        self.records.push(kv);
    }

    /// How many records the next chunk should have.
    fn next_chunk(&self, last: usize) -> usize {
        let missing = self.wanted - self.records.len();
        if self.records.is_empty() {
            return missing.min(FIRST_CHUNK);
        }
        let fitting = CHUNK_BYTES / (self.bytes / self.records.len()).max(1);
        // Growing step by step: the first records may be smaller than the rest.
        fitting.clamp(1, MAX_CHUNK).min(last.max(1) * 4).min(missing)
    }
}

impl Shared {
    pub async fn read_status(&self) -> Result<StoreStatus, ReadError> {
        loop {
            let compacted = self.compacted();
            let probe = |revision| Request::Range(self.probe(revision)).into();
            let success = vec![probe(0), probe(signed(compacted).max(1))];
            let question = TxnRequest {
                success,
                ..TxnRequest::default()
            };
            match self.client.txn(question, Effect::Read).await {
                Ok(answer) => {
                    let revision = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
                    return Ok(StoreStatus { revision, compacted });
                }
                Err(Failure::Compacted) => self.find_compacted().await?,
                // Only an etcd that was set back to an old backup has not yet come to what was already compacted.
                Err(Failure::Future) => self.forget_compacted(),
                Err(failure) => return Err(failure.into_read(compacted)),
            };
        }
    }

    pub async fn read_one(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        let question = RangeRequest {
            key: self.layout.object(key),
            ..RangeRequest::default()
        };
        let answer = self
            .client
            .range(question)
            .await
            .map_err(|failure| failure.into_read(Revision(0)))?;
        Ok(answer.kvs.into_iter().next().map(record))
    }

    pub async fn read_page(&self, query: &RangeQuery<'_>) -> Result<Page, ReadError> {
        let Some(at) = query.at else {
            return self.read_newest(query).await;
        };
        match self.read_at(query, signed(at)).await {
            Err(Failure::Compacted) => self.read_quiet(query, at).await,
            Err(Failure::Future) => Err(ReadError::Future {
                current: self.read_status().await?.revision,
            }),
            other => other.map_err(|failure| failure.into_read(at)),
        }
    }

    async fn read_newest(&self, query: &RangeQuery<'_>) -> Result<Page, ReadError> {
        let mut restarts = 0;
        loop {
            match self.read_at(query, 0).await {
                // Its second chunk was compacted away before we came to it.
                Err(Failure::Compacted) if restarts < RESTARTS => restarts += 1,
                Err(Failure::Compacted) => return Err(self.expired().await),
                other => return other.map_err(|failure| failure.into_read(Revision(0))),
            }
        }
    }

    /// The state after a compacted revision, if the plane has not changed since: then it is also the state now.
    async fn read_quiet(&self, query: &RangeQuery<'_>, at: Revision) -> Result<Page, ReadError> {
        // The position before the check: changes up to it have been told to `quiet`.
        let position = self.hub.position();
        let quiet = query
            .range
            .plane()
            .is_some_and(|plane| self.quiet.unchanged_since(plane, at));
        if !quiet || position < at {
            return Err(self.expired().await);
        }
        match self.read_at(query, signed(position)).await {
            Ok(page) => Ok(Page { revision: at, ..page }),
            Err(Failure::Compacted) => Err(self.expired().await),
            Err(failure) => Err(failure.into_read(at)),
        }
    }

    /// [`ReadError::Expired`] with the compaction as it is now.
    pub async fn expired(&self) -> ReadError {
        match self.read_status().await {
            Ok(status) => ReadError::Expired {
                compacted: status.compacted,
            },
            Err(err) => err,
        }
    }

    async fn read_at(&self, query: &RangeQuery<'_>, at: i64) -> Result<Page, Failure> {
        let limit = query.limit.max(1);
        let mut at = at;
        let (mut collected, rest) = match self.layout.place(query.range, query.after) {
            // Asked all the same: the page names a revision, or the revision asked for is not there.
            Place::Contiguous(span) | Place::Indexed(span) if span.is_empty() => {
                let answer = self.client.range(self.probe(at)).await?;
                settle(&mut at, &answer);
                (Collected::new(0), Rest::Nothing)
            }
            Place::Contiguous(span) => {
                let mut collected = Collected::new(limit);
                let rest = self.scan(&span, &mut at, &mut collected).await?;
                (collected, rest)
            }
            Place::Indexed(entries) => {
                // One more than wanted: whether a later piece holds anything is only known by reading it.
                let mut collected = Collected::new(limit.saturating_add(1));
                let rest = self.walk(entries, query.after, &mut at, &mut collected).await?;
                (collected, rest)
            }
        };
        let more = rest == Rest::Something || collected.records.len() > limit;
        collected.records.truncate(limit);
        let records = collected
            .records
            .into_iter()
            .map(|kv| self.keyed_record(kv))
            .collect::<Result<_, _>>()?;
        Ok(Page {
            records,
            revision: unsigned(at),
            more,
        })
    }

    /// Reads a span at revision `at`; zero is the newest, and is replaced by its number.
    async fn scan(&self, span: &Span, at: &mut i64, into: &mut Collected) -> Result<Rest, Failure> {
        let mut span = span.clone();
        let (mut chunk, mut ceiling) = (0, usize::MAX);
        while !into.is_full() {
            chunk = into.next_chunk(chunk).min(ceiling);
            let answer = match self.client.range(question(&span, *at, chunk)).await {
                Err(Failure::AnswerTooLarge) if chunk > 1 => {
                    ceiling = chunk / 2;
                    continue;
                }
                other => other?,
            };
            settle(at, &answer);
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            answer.kvs.into_iter().for_each(|kv| into.push(kv));
            match last {
                Some(last) if answer.more => span = span.after(&last),
                _ => return Ok(Rest::Nothing),
            }
        }
        Ok(Rest::Something)
    }

    /// Reads the pieces that a span of index entries names.
    async fn walk(
        &self,
        entries: Span,
        after: Option<&Key>,
        at: &mut i64,
        into: &mut Collected,
    ) -> Result<Rest, Failure> {
        let mut entries = entries;
        loop {
            let question = RangeRequest {
                keys_only: true,
                ..question(&entries, *at, INDEX_CHUNK)
            };
            let answer = self.client.range(question).await?;
            settle(at, &answer);
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            let pieces: Vec<Span> = answer.kvs.iter().filter_map(|kv| self.piece(&kv.key, after)).collect();
            for batch in pieces.chunks(PIECES) {
                if self.read_pieces(batch, at, into).await? == Rest::Something {
                    return Ok(Rest::Something);
                }
            }
            match last {
                Some(last) if answer.more => entries = entries.after(&last),
                _ => return Ok(Rest::Nothing),
            }
        }
    }

    /// The objects that an index entry stands for, as far as they follow `after`.
    fn piece(&self, entry: &Bytes, after: Option<&Key>) -> Option<Span> {
        let (plane, resource) = self.layout.parse_index_entry(entry)?;
        match self.layout.place(&KeyRange::Resource(plane, resource), after) {
            Place::Contiguous(span) => (!span.is_empty()).then_some(span),
            Place::Indexed(_) => unreachable!("a resource of one plane lies in one piece"),
        }
    }

    async fn read_pieces(&self, pieces: &[Span], at: &mut i64, into: &mut Collected) -> Result<Rest, Failure> {
        if into.is_full() {
            return Ok(Rest::Something);
        }
        let most = PIECE_RECORDS.min(into.wanted - into.records.len());
        let success = pieces
            .iter()
            .map(|piece| Request::Range(question(piece, *at, most)).into())
            .collect();
        let together = TxnRequest {
            success,
            ..TxnRequest::default()
        };
        let answers: Vec<RangeResponse> = match self.client.txn(together, Effect::Read).await {
            Ok(answer) => answer
                .responses
                .into_iter()
                .filter_map(|response| response.range)
                .collect(),
            Err(Failure::AnswerTooLarge) => vec![
                RangeResponse {
                    more: true,
                    ..RangeResponse::default()
                };
                pieces.len()
            ],
            Err(failure) => return Err(failure),
        };
        for (piece, answer) in pieces.iter().zip(answers) {
            if into.is_full() {
                return Ok(Rest::Something);
            }
            let rest = answer
                .kvs
                .last()
                .map_or_else(|| piece.clone(), |last| piece.after(&last.key));
            answer.kvs.into_iter().for_each(|kv| into.push(kv));
            if answer.more && self.scan(&rest, at, into).await? == Rest::Something {
                return Ok(Rest::Something);
            }
        }
        Ok(Rest::Nothing)
    }

    /// How many records of a range follow a key. Where the range lies in one piece, etcd counts.
    pub async fn read_count(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
    ) -> Result<u64, ReadError> {
        if let Place::Contiguous(span) = self.layout.place(range, after)
            && !span.is_empty()
        {
            let question = RangeRequest {
                count_only: true,
                ..question(&span, at.map_or(0, signed), 0)
            };
            match self.client.range(question).await {
                Ok(answer) => return Ok(u64::try_from(answer.count).unwrap_or_default()),
                // Pages know how to go on, or what to say.
                Err(Failure::Compacted | Failure::Future) => {}
                Err(failure) => return Err(failure.into_read(at.unwrap_or_default())),
            }
        }
        let (mut count, mut at, mut after) = (0, at, after.cloned());
        loop {
            let query = RangeQuery {
                range,
                at,
                after: after.as_ref(),
                limit: USAGE_PAGE,
            };
            let page = self.read_page(&query).await?;
            count += page.records.len() as u64;
            if !page.more {
                return Ok(count);
            }
            at = Some(page.revision);
            after = page.records.into_iter().next_back().map(|(key, _)| key);
        }
    }

    pub async fn read_usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        let mut usage = Usage::default();
        let (mut at, mut after): (Option<Revision>, Option<Key>) = (None, None);
        loop {
            let query = RangeQuery {
                range,
                at,
                after: after.as_ref(),
                limit: USAGE_PAGE,
            };
            let page = match self.read_page(&query).await {
                // It took so long that history was compacted under it: go on with what there is now.
                Err(ReadError::Expired { .. }) if at.is_some() => {
                    at = None;
                    continue;
                }
                other => other?,
            };
            usage.records += page.records.len() as u64;
            usage.bytes += page
                .records
                .iter()
                .map(|(key, record)| key.as_str().len() + record.value.len())
                .sum::<usize>() as u64;
            if !page.more {
                return Ok(usage);
            }
            at = Some(page.revision);
            after = page.records.into_iter().next_back().map(|(key, _)| key);
        }
    }

    /// Learns the last compaction, which etcd does not tell, by trying what can be read.
    async fn find_compacted(&self) -> Result<(), ReadError> {
        let unavailable = |failure: Failure| failure.into_read(Revision(0));
        let newest = self.client.range(self.probe(0)).await.map_err(unavailable)?;
        // `low` is compacted away, `high` can be read (or could when we looked).
        let mut low = self.compacted().0.max(1);
        let mut high = newest.header.map_or(0, |header| unsigned(header.revision).0);
        while low + 1 < high {
            let middle = low.midpoint(high);
            match self.client.range(self.probe(signed(Revision(middle)))).await {
                Ok(_) => high = middle,
                Err(Failure::Compacted) => low = middle,
                Err(failure) => return Err(unavailable(failure)),
            }
        }
        self.note_compacted(Revision(high));
        Ok(())
    }

    /// Whether the state right after `revision` can still be read.
    pub async fn is_readable(&self, revision: Revision) -> Result<bool, Failure> {
        match self.client.range(self.probe(signed(revision).max(1))).await {
            Ok(_) | Err(Failure::Future) => Ok(true),
            Err(Failure::Compacted) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The cheapest read there is, at a revision.
    pub fn probe(&self, revision: i64) -> RangeRequest {
        RangeRequest {
            key: self.layout.format(),
            revision,
            count_only: true,
            ..RangeRequest::default()
        }
    }

    fn keyed_record(&self, kv: KeyValue) -> Result<(Key, Record), Failure> {
        match self.layout.parse_object(&kv.key) {
            Some(key) => Ok((key, record(kv))),
            None => Err(Failure::Corrupt(format!(
                "etcd holds {:?}, which is no object of ours",
                kv.key
            ))),
        }
    }
}

pub fn record(kv: KeyValue) -> Record {
    Record {
        revision: unsigned(kv.mod_revision),
        value: kv.value,
    }
}

fn question(span: &Span, at: i64, limit: usize) -> RangeRequest {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (key, range_end) = (span.start.clone(), span.end.clone());
    RangeRequest {
        key,
        range_end,
        limit,
        revision: at,
        ..RangeRequest::default()
    }
}

/// The revision of the first answer is that of all that follow.
fn settle(at: &mut i64, answer: &RangeResponse) {
    if *at == 0 {
        *at = answer.header.map_or(0, |header| header.revision);
    }
}
