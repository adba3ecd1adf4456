//! A map whose copies share what they have in common: the schema's versions are kept in it.
//!
//! ```text
//! root ─ 16 ways by four bits of the key's hash ─ 16 ways by the next four ─ … ─ a leaf of at most LEAF entries
//! ```
//! A copy is one pointer. A change copies the nodes on the way to its leaf and no others, so that n changes make O(n log n) nodes
//! however many copies are kept. What differs between two copies is found without looking at what they share.
//!
//! The shape depends on the keys only. Iteration is in the order of hashes, which is no order.
//!
//! Left out on purpose: merging nodes that have become small.

use foldhash::fast::FixedState;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Most entries of a leaf that can be divided.
const LEAF: usize = 8;
const WAYS: usize = 16;
/// Bits of a hash.
const DEEPEST: u32 = 64;

/// A persistent hash map.
#[derive(Debug)]
pub struct PMap<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<K, V> {
    Branch([Option<Arc<Node<K, V>>>; WAYS]),
    Leaf(Vec<(K, V)>),
}

impl<K, V> Clone for PMap<K, V> {
    fn clone(&self) -> Self {
        PMap {
            root: self.root.clone(),
            len: self.len,
        }
    }
}

impl<K, V> Default for PMap<K, V> {
    fn default() -> Self {
        PMap {
            root: Arc::new(Node::Leaf(Vec::new())),
            len: 0,
        }
    }
}

#[inline]
fn hash_of<Q: Hash + ?Sized>(k: &Q) -> u64 {
    FixedState::default().hash_one(k)
}

#[inline]
fn way(hash: u64, depth: u32) -> usize {
    (hash >> depth) as usize % WAYS
}

impl<K, V> PMap<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut it = Iter {
            nodes: Vec::new(),
            leaf: [].iter(),
        };
        it.enter(&self.root);
        it
    }

    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// Whether the two are the same copy.
    pub fn is(&self, other: &PMap<K, V>) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> PMap<K, V> {
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = hash_of(key);
        let (mut node, mut depth) = (&*self.root, 0);
        loop {
            match node {
                Node::Leaf(l) => return l.iter().find(|(k, _)| k.borrow() == key).map(|e| &e.1),
                Node::Branch(b) => node = b[way(hash, depth)].as_deref()?,
            }
            depth += 4;
        }
    }

    /// Puts a value in; the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = hash_of(&key);
        let old = put(&mut self.root, hash, 0, key, value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Takes a value out.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // Nothing is copied for what is not there.
        self.get(key)?;
        self.len -= 1;
        take(&mut self.root, hash_of(key), 0, key)
    }

    /// Calls `f` for each key whose values in `self` and in `later` are not in a node that both share: both values, or the one that is
    /// there. (They may be equal all the same.)
    pub fn each_change(&self, later: &PMap<K, V>, f: &mut dyn FnMut(&K, Option<&V>, Option<&V>)) {
        changes(Some(&self.root), Some(&later.root), f);
    }
}

fn put<K: Hash + Eq + Clone, V: Clone>(
    node: &mut Arc<Node<K, V>>,
    hash: u64,
    depth: u32,
    key: K,
    value: V,
) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Branch(b) => match &mut b[way(hash, depth)] {
            Some(n) => put(n, hash, depth + 4, key, value),
            empty => {
                *empty = Some(Arc::new(Node::Leaf(vec![(key, value)])));
                None
            }
        },
        Node::Leaf(l) => {
            if let Some(e) = l.iter_mut().find(|e| e.0 == key) {
                return Some(std::mem::replace(&mut e.1, value));
            }
            l.push((key, value));
            if l.len() > LEAF && depth < DEEPEST {
                let mut branch: [Option<Arc<Node<K, V>>>; WAYS] = Default::default();
                for (k, v) in std::mem::take(l) {
                    let at = &mut branch[way(hash_of(&k), depth)];
                    let leaf = at.get_or_insert_with(|| Arc::new(Node::Leaf(Vec::new())));
                    if let Node::Leaf(l) = Arc::make_mut(leaf) {
                        l.push((k, v));
                    }
                }
                *Arc::make_mut(node) = Node::Branch(branch);
            }
            None
        }
    }
}

fn take<K: Hash + Eq + Clone + Borrow<Q>, V: Clone, Q: Hash + Eq + ?Sized>(
    node: &mut Arc<Node<K, V>>,
    hash: u64,
    depth: u32,
    key: &Q,
) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(l) => {
            let at = l.iter().position(|e| e.0.borrow() == key)?;
            Some(l.swap_remove(at).1)
        }
        Node::Branch(b) => {
            let way = &mut b[way(hash, depth)];
            let child = way.as_mut()?;
            let taken = take(child, hash, depth + 4, key);
            if matches!(&**child, Node::Leaf(l) if l.is_empty()) {
                *way = None;
            }
            taken
        }
    }
}

fn changes<K: Eq + Clone, V: Clone>(
    a: Option<&Arc<Node<K, V>>>,
    b: Option<&Arc<Node<K, V>>>,
    f: &mut dyn FnMut(&K, Option<&V>, Option<&V>),
) {
    match (a.map(|n| (n, &**n)), b.map(|n| (n, &**n))) {
        (Some((x, _)), Some((y, _))) if Arc::ptr_eq(x, y) => {}
        (Some((_, Node::Branch(x))), Some((_, Node::Branch(y)))) => {
            for (x, y) in x.iter().zip(y) {
                changes(x.as_ref(), y.as_ref(), f);
            }
        }
        _ => {
            // One of them is a leaf, so that the other is small, or was.
            let entries = |n: Option<&Arc<Node<K, V>>>| -> Vec<(K, V)> {
                let mut it = Iter {
                    nodes: Vec::new(),
                    leaf: [].iter(),
                };
                if let Some(n) = n {
                    it.enter(n);
                }
                it.map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            let (x, y) = (entries(a), entries(b));
            let find = |l: &[(K, V)], k: &K| l.iter().position(|e| e.0 == *k);
            for (k, v) in &x {
                f(k, Some(v), find(&y, k).map(|i| &y[i].1));
            }
            for (k, v) in y.iter().filter(|e| find(&x, &e.0).is_none()) {
                f(k, None, Some(v));
            }
        }
    }
}

impl<K, V, Q> std::ops::Index<&Q> for PMap<K, V>
where
    K: Hash + Eq + Clone + Borrow<Q>,
    V: Clone,
    Q: Hash + Eq + ?Sized,
{
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

impl<K: Hash + Eq + Clone, V: Clone> FromIterator<(K, V)> for PMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(all: T) -> Self {
        let mut m = PMap::default();
        for (k, v) in all {
            m.insert(k, v);
        }
        m
    }
}

/// Values in the order of the nodes.
pub struct Values<'m, K, V>(Iter<'m, K, V>);

impl<'m, K, V> Iterator for Values<'m, K, V> {
    type Item = &'m V;

    fn next(&mut self) -> Option<&'m V> {
        self.0.next().map(|(_, v)| v)
    }
}

/// Entries in the order of the nodes.
pub struct Iter<'m, K, V> {
    nodes: Vec<std::slice::Iter<'m, Option<Arc<Node<K, V>>>>>,
    leaf: std::slice::Iter<'m, (K, V)>,
}

impl<'m, K, V> Iter<'m, K, V> {
    fn enter(&mut self, n: &'m Node<K, V>) {
        match n {
            Node::Branch(b) => self.nodes.push(b.iter()),
            Node::Leaf(l) => self.leaf = l.iter(),
        }
    }
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((k, v)) = self.leaf.next() {
                return Some((k, v));
            }
            match self.nodes.last_mut()?.next() {
                Some(Some(n)) => self.enter(n),
                Some(None) => {}
                None => drop(self.nodes.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn does_what_a_map_does_and_leaves_its_copies_alone() {
        let (mut m, mut model) = (PMap::default(), BTreeMap::new());
        let mut copies = Vec::new();
        let mut x = 7u64;
        for step in 0..20_000u32 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (x >> 33) as u32 % 3000;
            match x >> 62 {
                0 => assert_eq!(m.remove(&key), model.remove(&key)),
                _ => assert_eq!(m.insert(key, step), model.insert(key, step)),
            }
            assert_eq!(m.len(), model.len());
            if step % 4000 == 0 {
                copies.push((m.clone(), model.clone()));
            }
        }
        copies.push((m, model));
        for (m, model) in &copies {
            let mut all: Vec<_> = m.iter().map(|(k, v)| (*k, *v)).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))));
            assert!((0..3000).all(|k| m.get(&k) == model.get(&k)));
        }
        for (a, b) in copies.iter().zip(&copies[1..]) {
            let mut now = a.1.clone();
            a.0.each_change(&b.0, &mut |k, old, new| {
                assert_eq!(old, a.1.get(k));
                match new {
                    Some(v) => drop(now.insert(*k, *v)),
                    None => drop(now.remove(k)),
                }
            });
            assert_eq!(now, b.1, "the changes lead from one to the other");
        }
    }

    /// Not the time is counted but what a change touches.
    #[test]
    fn a_change_touches_little_however_long_the_map_is() {
        let big: PMap<u32, u32> = (0..100_000).map(|i| (i, i)).collect();
        let mut next = big.clone();
        next.insert(100_001, 1);
        next.remove(&17);
        let mut seen = 0;
        big.each_change(&next, &mut |_, _, _| seen += 1);
        assert!(seen <= 4 * (LEAF + WAYS), "{seen} entries were looked at");
    }
}
