//! The published region: words of a primary that its replicas read, to know what they have to wait for (PolarDB-SCC §4.1, §4.2).
//!
//! ```text
//! word      0         1, 2      3      4      5       6      8           16       24        32 ..              1056 ..
//!           magic     cluster   term   name   alive   until  published   global   catalog   TABLES slots       BUCKETS slots
//!                               0: not the primary                                          by storage         by storage and primary key
//! ```
//! All are positions but the first seven. A slot holds the newest position that modified anything which maps to it; a record that shares a slot
//! only makes the other wait longer. Sizes are fixed and places computed, so that a reader needs nothing but the words: they may lie in
//! this process, in a file that two processes map, or behind a network card.
//!
//! **Order.** Slots are only ever raised ([`raise`]), by the committing thread, before its commit counts as installed ([`Region::modified`]); a
//! position is published after it is installed; *published* here is raised before the node's own mark, so before any reply leaves. Hence
//! for a reader that reads *published* first and a slot afterwards: every modification up to the one is in the other. The term is read before
//! and after everything else: when both are the same and not 0, the node was the primary of that term all the while.

use crate::error::Result;
use crate::id::RelId;
use crate::key;
use crate::position::Position;
use crate::record::{COMMIT_HEAD, CommitHead, RECORD_HEAD, RecordHead, RecordKind};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Says what the words are, and the version of the layout.
pub const MAGIC: u64 = u64::from_be_bytes(*b"canonRg1");

pub const MAGIC_WORD: u32 = 0;
pub const CLUSTER_WORDS: [u32; 2] = [1, 2];
pub const TERM_WORD: u32 = 3;
/// A number that no other region has: whoever maps words that others told him of sees whether they are theirs.
pub const NAME_WORD: u32 = 4;
/// Marked while the process lives whose region it is, where others map it (`store::Alive`).
pub const ALIVE_WORD: u32 = 5;
/// Until when no other node can be named primary: nanoseconds of `env::Clock::boot_nanos`, which all processes of the host share. 0: as long as the term says
/// so, as no members of a cluster name primaries.
pub const UNTIL_WORD: u32 = 6;
pub const PUBLISHED_WORD: u32 = 8;
pub const GLOBAL_WORD: u32 = 16;
pub const CATALOG_WORD: u32 = 24;
const FIRST_TABLE: u32 = 32;

/// Slots of tables.
pub const TABLES: u32 = 1 << 10;
/// Slots of rows: our "pages" (SCC §4.2). At 64 Ki, a thousand modified rows in flight make one point read in 64 wait for nothing.
pub const BUCKETS: u32 = 1 << 16;

/// Words in all.
pub const WORDS: usize = (FIRST_TABLE + TABLES + BUCKETS) as usize;

/// The slot of a table's storage.
#[inline]
pub const fn table_slot(storage: RelId) -> u32 {
    // Storages are numbered one after the other; a multiplication spreads the bits of any other habit.
    FIRST_TABLE + (storage.wrapping_mul(0x9E37_79B1) >> 22) % TABLES
}

/// The slot of a row, from the hash of its primary key ([`row_hash`]).
#[inline]
pub const fn bucket_slot(row_hash: u64) -> u32 {
    FIRST_TABLE + TABLES + (row_hash >> 32) as u32 % BUCKETS
}

/// What a row is found by: storage and encoded primary key. The same as in the head of a log record.
#[inline]
pub fn row_hash(storage: RelId, encoded_key: &[u8]) -> u64 {
    key::hash(storage, encoded_key)
}

/// Whether the word is the slot of a table.
pub const fn is_table_slot(word: u32) -> bool {
    word >= FIRST_TABLE && word < FIRST_TABLE + TABLES
}

/// Whether the word is the slot of rows.
pub const fn is_row_slot(word: u32) -> bool {
    word >= FIRST_TABLE + TABLES
}

/// Where the words are. There are [`WORDS`] of them.
pub trait Words: Send + Sync + 'static {
    fn words(&self) -> &[AtomicU64];
}

impl Words for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// See the head of the file.
pub struct Region {
    words: Box<dyn Words>,
    /// The term that begins when everything up to the position is published.
    coming: Mutex<Option<(u64, Position)>>,
    is_coming: AtomicBool,
}

impl Default for Region {
    /// In this process's memory, of a node that is not the primary.
    fn default() -> Region {
        let words: Box<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Region::over(Box::new(words))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = self.words.words();
        let at = |i: u32| Position::from_u64(w[i as usize].load(Ordering::Relaxed));
        let term = w[TERM_WORD as usize].load(Ordering::Relaxed);
        let (published, global) = (at(PUBLISHED_WORD), at(GLOBAL_WORD));
        write!(f, "term {term}, published {published}, global {global}")
    }
}

/// Raises a word. Looked at first: most often it stands there already, or higher, and a look takes the line from nobody.
#[inline]
fn raise(word: &AtomicU64, to: u64) {
    if word.load(Ordering::Relaxed) < to {
        word.fetch_max(to, Ordering::AcqRel);
    }
}

impl Region {
    /// Over these words, which are all 0.
    pub fn over(words: Box<dyn Words>) -> Region {
        assert_eq!(words.words().len(), WORDS, "a region has its fixed size");
        Region {
            words,
            coming: Mutex::default(),
            is_coming: AtomicBool::new(false),
        }
    }

    /// The node leads this term. Everything may have been modified up to `recovered`, since nobody counted. Any of it may have been
    /// acknowledged, so nobody learns anything here before all of it is published: by the node's own mark, which `published` reads.
    pub fn lead(
        &self,
        cluster: u128,
        term: u64,
        recovered: Position,
        published: impl Fn() -> Position,
    ) {
        let w = self.words.words();
        let to = recovered.as_u64();
        w[GLOBAL_WORD as usize..]
            .iter()
            .for_each(|slot| raise(slot, to));
        w[MAGIC_WORD as usize].store(MAGIC, Ordering::Release);
        w[CLUSTER_WORDS[0] as usize].store((cluster >> 64) as u64, Ordering::Release);
        w[CLUSTER_WORDS[1] as usize].store(cluster as u64, Ordering::Release);
        *self.lock() = Some((term, recovered));
        self.is_coming.store(true, Ordering::SeqCst);
        // The other side of `published`: one of the two sees what the other has done.
        fence(Ordering::SeqCst);
        let published = published();
        self.publish(published);
        self.begin_term(published);
    }

    /// The node leads no more: whoever reads from now on learns nothing.
    pub fn resign(&self) {
        let mut coming = self.lock();
        *coming = None;
        self.is_coming.store(false, Ordering::SeqCst);
        self.words.words()[TERM_WORD as usize].store(0, Ordering::SeqCst);
    }

    /// The lease of the primary; see [`UNTIL_WORD`].
    pub fn lead_until(&self, until: u64) {
        self.words.words()[UNTIL_WORD as usize].store(until, Ordering::SeqCst);
    }

    /// The same, as it is told.
    pub fn until(&self) -> u64 {
        self.words.words()[UNTIL_WORD as usize].load(Ordering::SeqCst)
    }

    /// What has to be published before the node tells that it leads; none: it does, or does not lead.
    pub fn waits_for(&self) -> Option<Position> {
        self.lock().map(|c| c.1)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(u64, Position)>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The term that the node leads; 0: none.
    pub fn term(&self) -> u64 {
        self.words.words()[TERM_WORD as usize].load(Ordering::SeqCst)
    }

    /// This is about to be published.
    #[inline]
    pub fn publish(&self, to: Position) {
        raise(&self.words.words()[PUBLISHED_WORD as usize], to.as_u64());
    }

    /// The node's own mark has been raised to this. A term begins after that, so that whoever finds the node leading finds there, too, what
    /// was acknowledged before.
    #[inline]
    pub fn published(&self, to: Position) {
        fence(Ordering::SeqCst);
        if self.is_coming.load(Ordering::SeqCst) {
            self.begin_term(to);
        }
    }

    #[cold]
    fn begin_term(&self, published: Position) {
        let mut coming = self.lock();
        let Some((term, _)) = coming.take_if(|c| published >= c.1) else {
            return;
        };
        self.is_coming.store(false, Ordering::SeqCst);
        self.words.words()[TERM_WORD as usize].store(term, Ordering::SeqCst);
    }

    /// A commit with these heads (`record`) is installed at its position. Call before it counts as installed.
    #[inline]
    pub fn modified(&self, heads: &[u8]) {
        self.modified_by(heads, |_, word, to| raise(word, to));
    }

    /// The same with another way to write a slot, which is told the word's number: for the test of what would come of it.
    #[inline]
    pub fn modified_by(&self, heads: &[u8], raise: impl Fn(u32, &AtomicU64, u64)) {
        let raised = self.raise_all(heads, raise);
        raised.expect("heads of a commit that was made here");
    }

    /// The same for a commit of another node. XX001: its heads are not readable.
    pub fn came(&self, heads: &[u8]) -> Result<()> {
        self.raise_all(heads, |_, word, to| raise(word, to))
    }

    #[inline]
    fn raise_all(&self, heads: &[u8], raise: impl Fn(u32, &AtomicU64, u64)) -> Result<()> {
        let head = CommitHead::read(heads)?;
        if head.records == 0 {
            return Ok(());
        }
        let w = self.words.words();
        let to = head.position.as_u64();
        let raise = |word: u32, to| raise(word, &w[word as usize], to);
        for r in heads[COMMIT_HEAD..head.heads].chunks_exact(RECORD_HEAD) {
            let r = RecordHead::read(r)?;
            match r.kind {
                RecordKind::Put | RecordKind::Delete => {
                    raise(table_slot(r.storage), to);
                    raise(bucket_slot(r.key_hash), to);
                }
                // Every table's schema: which storage its rows are in, too (TRUNCATE).
                RecordKind::Schema => raise(CATALOG_WORD, to),
                RecordKind::Sequence => raise(table_slot(r.storage), to),
                RecordKind::Notify => {}
            }
        }
        raise(GLOBAL_WORD, to);
        Ok(())
    }

    /// The newest position that modified what maps to this slot.
    pub fn slot(&self, word: u32) -> Position {
        Position::from_u64(self.words.words()[word as usize].load(Ordering::SeqCst))
    }

    /// These words, read in this order; none when there is no such word.
    pub fn read(&self, wanted: &[u32], out: &mut Vec<u64>) -> Option<()> {
        read(self.words.words(), wanted, out)
    }
}

/// Reads words in order.
pub fn read(words: &[AtomicU64], wanted: &[u32], out: &mut Vec<u64>) -> Option<()> {
    for &w in wanted {
        out.push(words.get(w as usize)?.load(Ordering::SeqCst));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CommitBuilder;

    fn commit(at: Position, records: &[(RecordKind, RelId, &[u8])]) -> Vec<u8> {
        let mut b = CommitBuilder::new();
        records.iter().for_each(|r| b.push(r.0, r.1, r.2, b""));
        b.finish(at, 0).0
    }

    fn value(r: &Region, word: u32) -> u64 {
        let mut out = vec![];
        r.read(&[word], &mut out).unwrap();
        out[0]
    }

    #[test]
    fn a_commit_raises_its_tables_and_rows_and_lowers_nothing() {
        use RecordKind::{Delete, Put, Schema};
        let (early, late) = (Position::new(2, 1), Position::new(2, 5));
        let r = Region::default();
        r.lead(7, 3, Position::new(1, 0), || Position::new(1, 0));
        // A key that changes: a row goes, a row comes.
        r.modified(&commit(late, &[(Delete, 9, b"a"), (Put, 9, b"b")]));
        r.modified(&commit(early, &[(Put, 9, b"a"), (Put, 10, b"c")]));
        for key in [b"a", b"b"] {
            let slot = bucket_slot(row_hash(9, key));
            assert_eq!(value(&r, slot), late.as_u64());
        }
        assert_eq!(value(&r, table_slot(9)), late.as_u64());
        assert_eq!(value(&r, table_slot(10)), early.as_u64());
        assert_eq!(value(&r, GLOBAL_WORD), late.as_u64());
        assert_eq!(value(&r, CATALOG_WORD), Position::new(1, 0).as_u64());
        let ddl = Position::new(3, 0);
        r.modified(&commit(ddl, &[(Schema, 0, b"")]));
        assert_eq!(value(&r, CATALOG_WORD), ddl.as_u64());
        // The first commit of a term, or one that keeps a hole, modifies nothing.
        r.modified(&commit(Position::new(4, 0), &[]));
        assert_eq!(value(&r, GLOBAL_WORD), ddl.as_u64());
    }

    #[test]
    fn a_new_leader_knows_nothing_of_what_was_before() {
        let r = Region::default();
        let at = Position::new(5, 5);
        r.lead(1, 4, at, || at.prev());
        assert!((GLOBAL_WORD..WORDS as u32).all(|w| value(&r, w) == at.as_u64()));
        // Some of it may have been acknowledged and is not published.
        assert_eq!((r.term(), r.waits_for()), (0, Some(at)));
        // Not before the node's own mark stands there: who finds it leading asks that.
        r.publish(at);
        assert_eq!((r.term(), r.waits_for()), (0, Some(at)));
        r.published(at);
        assert_eq!((r.term(), value(&r, MAGIC_WORD)), (4, MAGIC));
        assert_eq!(r.waits_for(), None);
        r.resign();
        assert_eq!(r.term(), 0);
        assert!(r.read(&[WORDS as u32], &mut vec![]).is_none());
    }

    #[test]
    fn slots_are_in_their_parts() {
        for id in 0..5000 {
            assert!(is_table_slot(table_slot(id)));
            let b = bucket_slot(row_hash(id, b"key"));
            assert!(!is_table_slot(b) && (b as usize) < WORDS);
        }
        let distinct: std::collections::HashSet<_> = (16384..16484).map(table_slot).collect();
        assert!(
            distinct.len() > 90,
            "a hundred tables have slots of their own"
        );
    }

    /// By hand: `cargo test --release -p base -- --nocapture what_a_commit_pays`. Nothing is asserted of the time.
    #[test]
    fn what_a_commit_pays() {
        let r = Region::default();
        let n = 100_000u64;
        let keys: Vec<_> = (0..n).map(u64::to_be_bytes).collect();
        let commits: Vec<_> = (keys.iter().zip(1..))
            .map(|(k, at)| commit(Position::from_u64(at), &[(RecordKind::Put, 9, k)]))
            .collect();
        let began = std::time::Instant::now();
        commits.iter().for_each(|c| r.modified(c));
        let each = began.elapsed().as_nanos() as f64 / n as f64;
        println!("{each:.0} ns for a commit of one row");
        assert_eq!(value(&r, GLOBAL_WORD), n);
    }
}
