//! What the index costs: CPU nanoseconds per operation, beside a `BTreeMap` behind 64 locks and `crossbeam-skiplist`.
//!
//! `cargo run --release -p store --example index_bench [keys] [only]`
//!
//! One million keys by default, inserted in the order named, then got and scanned (10 entries, each one's value read) at
//! random; each operation pins an epoch of its own. All three lead to objects on the heap, as the store's records are; ours
//! keeps the key only there. With two threads each does half of the inserts, and gets and scans everything. CPU time of
//! the threads, not wall time; `only` is a part of a structure's name.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr::{self, NonNull};
use std::sync::RwLock;
use std::time::{Duration, Instant};

use crossbeam_epoch::pin;
use crossbeam_skiplist::SkipMap;
use store::tree::{Direction, Entry, Tree};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCAN: usize = 10;
/// The best of so many is shown: other work on the machine only ever adds.
const ROUNDS: usize = 2;

fn main() {
    let mut args = std::env::args().skip(1);
    let n: usize = args
        .next()
        .map_or(1_000_000, |n| n.parse().expect("a number of keys"));
    let only = args.next().unwrap_or_default();
    println!("{n} keys; ns of CPU per operation, 1 -> 2 threads");
    println!(
        "{:<34}{:>16}{:>16}{:>16}",
        "", "insert", "get", "scan of 10"
    );
    let spread = |n: u64| {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let random: Vec<_> = (0..n as u64).map(|i| spread(i).to_be_bytes()).collect();
    let ascending: Vec<_> = (0..n as u64).map(|i| i.to_be_bytes()).collect();
    // Two columns: few different values, then the random one.
    let composite: Vec<[u8; 16]> = (0..n as u64)
        .map(|i| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&(spread(i) % 100).to_be_bytes());
            key[8..].copy_from_slice(&spread(i + 1).to_be_bytes());
            key
        })
        .collect();
    let wide: Vec<[u8; 16]> = (0..n as u128)
        .map(|i| (((spread(i as u64) as u128) << 64) | i).to_be_bytes())
        .collect();
    all("8 bytes, random", &random, &only);
    all("8 bytes, ascending", &ascending, &only);
    all("16 bytes, random", &wide, &only);
    all(
        "16 bytes, a column of 100 and one random",
        &composite,
        &only,
    );
}

fn all<const K: usize>(what: &str, keys: &[[u8; K]], only: &str) {
    println!("{what}");
    // In an array of their own, in the order of use: the fetching of a key from memory is not the index's.
    let mut probes = keys.to_vec();
    let mut seed = 1u64;
    for i in (1..probes.len()).rev() {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        probes.swap(i, (seed >> 33) as usize % (i + 1));
    }
    measure::<K, Ours>("tree", keys, &probes, only);
    measure::<K, Locked<K>>("BTreeMap behind 64 RwLocks", keys, &probes, only);
    measure::<K, Skip<K>>("crossbeam-skiplist", keys, &probes, only);
}

fn measure<const K: usize, I: Index<K>>(
    name: &str,
    keys: &[[u8; K]],
    probes: &[[u8; K]],
    only: &str,
) {
    if !name.contains(only) {
        return;
    }
    let runs = [1, 2].map(|threads| {
        let rounds = (0..ROUNDS).map(|_| round::<K, I>(threads, keys, probes));
        let best = |a: [u128; 3], b: [u128; 3]| std::array::from_fn(|i| a[i].min(b[i]));
        rounds
            .reduce(|(a, bytes), (b, _)| (best(a, b), bytes))
            .expect("a round")
    });
    print!("  {name:<32}");
    for i in 0..3 {
        print!("{:>16}", format!("{} -> {}", runs[0].0[i], runs[1].0[i]));
    }
    match runs[0].1 {
        0 => println!(),
        bytes => println!(
            "  {:.1} B of nodes per entry",
            bytes as f64 / keys.len() as f64
        ),
    }
}

fn round<const K: usize, I: Index<K>>(
    threads: usize,
    keys: &[[u8; K]],
    probes: &[[u8; K]],
) -> ([u128; 3], usize) {
    let index = I::default();
    let insert = per_op(threads, |t| {
        let half = keys.len() / threads;
        keys[t * half..(t + 1) * half]
            .iter()
            .for_each(|key| index.insert(key, 1));
        half
    });
    let get = per_op(threads, |t| {
        let sum: u64 = probes.iter().skip(t * 1000).map(|key| index.get(key)).sum();
        assert_eq!(sum as usize, probes.len() - t * 1000);
        probes.len()
    });
    let scan = per_op(threads, |t| {
        let sum: u64 = probes
            .iter()
            .skip(t * 1000)
            .map(|key| index.scan(key))
            .sum();
        assert!(sum as usize > (probes.len() - t * 1000 - SCAN) * SCAN);
        probes.len()
    });
    ([insert, get, scan], index.bytes())
}

/// CPU nanoseconds per operation over all threads.
fn per_op(threads: usize, work: impl Fn(usize) -> usize + Sync) -> u128 {
    let done: Vec<(usize, Duration)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|t| {
                let work = &work;
                scope.spawn(move || {
                    let (wall, before) = (Instant::now(), cpu());
                    let ops = work(t);
                    (
                        ops,
                        before.map_or_else(
                            || wall.elapsed(),
                            |before| cpu().expect("as before") - before,
                        ),
                    )
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().expect("worker"))
            .collect()
    });
    let ops: usize = done.iter().map(|(ops, _)| ops).sum();
    done.iter().map(|(_, time)| time.as_nanos()).sum::<u128>() / ops as u128
}

/// This thread's CPU time, where the kernel tells it.
fn cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
}

trait Index<const K: usize>: Default + Sync {
    fn insert(&self, key: &[u8; K], value: u64);
    fn get(&self, key: &[u8; K]) -> u64;
    /// The sum of the values of the first 10 entries from the key on.
    fn scan(&self, key: &[u8; K]) -> u64;
    fn bytes(&self) -> usize {
        0
    }
}

#[repr(C)]
struct Record {
    value: u64,
    len: usize,
}

impl Record {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(size_of::<Record>() + len, align_of::<Record>()).expect("small")
    }

    fn make(key: &[u8], value: u64) -> NonNull<Record> {
        // SAFETY: a layout that is not empty, with room for the record and its key.
        unsafe {
            let record =
                NonNull::new(alloc(Self::layout(key.len())).cast::<Record>()).expect("memory");
            record.write(Record {
                value,
                len: key.len(),
            });
            ptr::copy_nonoverlapping(key.as_ptr(), record.as_ptr().add(1).cast(), key.len());
            record
        }
    }
}

// SAFETY: the key is behind the record, written once by `make`.
unsafe impl Entry for Record {
    fn key(&self) -> &[u8] {
        // SAFETY: `make` wrote `len` bytes there.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).add(1).cast(), self.len) }
    }

    unsafe fn free(record: NonNull<Self>) {
        // SAFETY: allocated by `make` with this layout, and the last pointer.
        unsafe { dealloc(record.cast().as_ptr(), Self::layout(record.as_ref().len)) }
    }
}

#[derive(Default)]
struct Ours(Tree<Record>);

impl<const K: usize> Index<K> for Ours {
    fn insert(&self, key: &[u8; K], value: u64) {
        assert!(
            self.0
                .get_or_insert(key, || Record::make(key, value), &pin())
                .1
        );
    }

    fn get(&self, key: &[u8; K]) -> u64 {
        self.0.get(key, &pin()).expect("inserted").value
    }

    fn scan(&self, key: &[u8; K]) -> u64 {
        let guard = pin();
        let mut out = Vec::with_capacity(SCAN);
        self.0.scan(
            Bound::Included(key),
            Bound::Unbounded,
            Direction::Forward,
            SCAN,
            &mut out,
            &guard,
        );
        out.iter().map(|record| record.value).sum()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

struct Locked<const K: usize>(Vec<RwLock<BTreeMap<[u8; K], Box<u64>>>>);

impl<const K: usize> Default for Locked<K> {
    fn default() -> Self {
        Locked((0..64).map(|_| RwLock::default()).collect())
    }
}

impl<const K: usize> Index<K> for Locked<K> {
    fn insert(&self, key: &[u8; K], value: u64) {
        self.0[key[0] as usize >> 2]
            .write()
            .expect("lock")
            .insert(*key, Box::new(value));
    }

    fn get(&self, key: &[u8; K]) -> u64 {
        *self.0[key[0] as usize >> 2].read().expect("lock")[key]
    }

    fn scan(&self, key: &[u8; K]) -> u64 {
        let (mut left, mut sum) = (SCAN, 0);
        for shard in &self.0[key[0] as usize >> 2..] {
            for value in shard
                .read()
                .expect("lock")
                .range(*key..)
                .take(left)
                .map(|(_, value)| **value)
            {
                (sum, left) = (sum + value, left - 1);
            }
            if left == 0 {
                break;
            }
        }
        sum
    }
}

#[derive(Default)]
struct Skip<const K: usize>(SkipMap<[u8; K], Box<u64>>);

impl<const K: usize> Index<K> for Skip<K> {
    fn insert(&self, key: &[u8; K], value: u64) {
        self.0.insert(*key, Box::new(value));
    }

    fn get(&self, key: &[u8; K]) -> u64 {
        **self.0.get(key).expect("inserted").value()
    }

    fn scan(&self, key: &[u8; K]) -> u64 {
        self.0
            .range(*key..)
            .take(SCAN)
            .map(|entry| **entry.value())
            .sum()
    }
}
