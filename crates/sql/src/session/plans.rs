//! Plans kept by text, shared by all sessions.
//!
//! A key is everything that a plan depends on but the schema: the text, the declared parameter types, and the settings that
//! names and literals are read by (`env`: search path, user, date style, time zone). A plan says for which version of the
//! schema it was made; who finds one of another version plans again and puts the new one in its place.
//!
//! Shards keep sessions from waiting for one another. A full shard drops the entries that were used longest ago. Full is a shard with too many
//! entries, or with too many bytes: of large statements it keeps few, so that no client fills the server's memory with plans.

use super::class::Runs;
use super::client::Column;
use super::parse::Parsed;
use crate::plan::{Prepared, StatementKind};
use base::Oid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

/// A planned statement with what the wire needs to know of it.
pub struct Plan {
    pub prepared: Arc<Prepared>,
    pub columns: Vec<Column>,
    /// Where it may run, once that was asked.
    pub away: OnceLock<Runs>,
}

impl Plan {
    pub fn new(prepared: Arc<Prepared>) -> Arc<Plan> {
        let columns = prepared
            .columns
            .iter()
            .map(|c| Column {
                name: c.name.as_str().into(),
                ty: c.ty,
                table: c.table,
                attribute: c.column,
                record: c.record.clone(),
            })
            .collect();
        Arc::new(Plan {
            prepared,
            columns,
            away: OnceLock::new(),
        })
    }

    /// Whether it gives rows. Those of a query may have no columns.
    pub fn gives_rows(&self) -> bool {
        let query = matches!(
            self.prepared.kind,
            StatementKind::Select | StatementKind::Explain
        );
        query || !self.columns.is_empty()
    }
}

/// A statement and its plan.
#[derive(Clone)]
pub struct Cached {
    pub parsed: Parsed,
    pub plan: Arc<Plan>,
}

struct Entry {
    text: Arc<str>,
    types: Box<[Oid]>,
    env: Arc<str>,
    used: u64,
    /// Bytes, about.
    weight: usize,
    cached: Cached,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<u64, Entry, foldhash::fast::FixedState>,
    clock: u64,
    /// Weights of all entries.
    bytes: usize,
}

impl Shard {
    fn remove(&mut self, hash: u64) {
        if let Some(e) = self.entries.remove(&hash) {
            self.bytes -= e.weight;
        }
    }

    fn remove_oldest(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, e)| e.used);
        let oldest = *oldest.expect("the shard is full").0;
        self.remove(oldest);
    }
}

/// The cache.
pub struct Plans {
    shards: Vec<Mutex<Shard>>,
    hasher: foldhash::fast::RandomState,
    per_shard: usize,
}

const SHARDS: usize = 16;
/// Longer texts are not kept: bulk loads written as literals would drive everything else out.
const MAX_TEXT: usize = 16 << 10;
/// Bytes that all plans together take.
const MAX_BYTES: usize = 32 << 20;
const SHARD_BYTES: usize = MAX_BYTES / SHARDS;
/// Bytes of a syntax tree for each byte of its text, as measured of arithmetic on short names, which is the densest; and of an entry without a text.
const TREE: usize = 150;
const ENTRY: usize = 1 << 10;

impl Plans {
    /// A cache of about `capacity` plans.
    pub fn new(capacity: usize) -> Plans {
        Plans {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
            per_shard: capacity.div_ceil(SHARDS).max(1),
        }
    }

    fn hash(&self, text: &str, types: &[Oid], env: &str) -> u64 {
        self.hasher.hash_one((text, types, env))
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The plan of this text, of whatever version.
    pub fn get(&self, text: &str, types: &[Oid], env: &str) -> Option<Cached> {
        let hash = self.hash(text, types, env);
        let mut s = self.shard(hash).lock();
        s.clock += 1;
        let clock = s.clock;
        let e = s.entries.get_mut(&hash)?;
        if &*e.text != text || &*e.types != types || &*e.env != env {
            return None;
        }
        e.used = clock;
        Some(e.cached.clone())
    }

    /// Keeps a plan that takes about `bytes`. One that would take half of its shard is not kept.
    pub fn put(&self, text: &str, types: &[Oid], env: &Arc<str>, bytes: usize, cached: Cached) {
        let weight = ENTRY + bytes + text.len() * TREE;
        if text.len() > MAX_TEXT || weight > SHARD_BYTES / 2 {
            return;
        }
        let hash = self.hash(text, types, env);
        let mut s = self.shard(hash).lock();
        s.clock += 1;
        s.remove(hash);
        while s.entries.len() >= self.per_shard || s.bytes + weight > SHARD_BYTES {
            s.remove_oldest();
        }
        let entry = Entry {
            text: text.into(),
            types: types.into(),
            env: env.clone(),
            used: s.clock,
            weight,
            cached,
        };
        s.bytes += weight;
        s.entries.insert(hash, entry);
    }

    /// Bytes of all plans kept, about.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().bytes).sum()
    }

    /// Number of plans kept.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().entries.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
