//! Types that CREATE TYPE made: enums and composite types.
//!
//! A [`UserType`] is one version of a definition. Definitions are *interned*: [`intern`] gives every equal definition the same address, and
//! the address stays good as long as the process lives. So a [`UserType`] is a small `Copy` value like the built-in types, and a value of an
//! enum can be printed without the schema at hand. A reader of an old version of the schema goes on with the labels that it knew.
//!
//! A value of an enum is the *rank* of its label. Ranks order as the labels do, and a label keeps its rank: rows need no change when
//! a label is added or renamed. Between two neighbours there is room for at least [`WORST_ROOM`] more.
//!
//! A value of a composite type has a field for each attribute that the type ever had, in their order. An attribute that was dropped keeps its place,
//! and one that was added is NULL in the values that are older: rows need no change then, either. Attributes may be of other users' types. So
//! a new version of such a type makes a new version of the composite type.
//!
//! The price is memory that is not given back: each version of a definition stays, about 100 bytes and its labels. DDL refuses a new one
//! (54000) when [`interned_bytes`] has passed [`MAX_INTERNED`].
//!
//! Left out on purpose: giving definitions back, range types; domains, which are their base type with checks.

use crate::id::Oid;
use crate::types::{ColumnType, Type};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// Bytes of definitions after which DDL makes no new ones.
pub const MAX_INTERNED: usize = 64 << 20;
/// Distance between labels that are made together.
const STEP: u64 = 1 << 44;
/// Most labels of one enum: that many steps there are.
pub const MAX_LABELS: usize = 1 << 16;
/// How many labels fit one after the other into the same place, in the worst order.
pub const WORST_ROOM: usize = 22;

/// A label of an enum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Number of its row in `pg_enum`.
    pub id: Oid,
    /// Its place in the order, for all time.
    pub rank: u64,
    pub name: String,
}

/// A part of a composite type.
#[derive(Clone, Debug)]
pub struct Attribute {
    pub name: String,
    pub ty: ColumnType,
    /// It keeps its place, because values do.
    pub dropped: bool,
}

impl Attribute {
    /// Whether the two are the same in every version of their types.
    fn same(&self, other: &Attribute) -> bool {
        let version = |t: Type| match t {
            Type::User(u) | Type::UserArray(u) => Some(u.0 as *const Definition),
            _ => None,
        };
        self.name == other.name
            && self.ty == other.ty
            && self.dropped == other.dropped
            && version(self.ty.ty) == version(other.ty.ty)
    }
}

/// One version of an enum's or a composite type's definition.
#[derive(Debug)]
pub struct Definition {
    pub oid: Oid,
    /// Number of the type of arrays over it.
    pub array: Oid,
    pub name: &'static str,
    /// `_name`.
    pub array_name: &'static str,
    /// In order of rank.
    pub labels: &'static [Label],
    /// Of a composite type; dropped ones, too.
    pub attributes: Option<&'static [Attribute]>,
}

/// An interned definition. Two are equal when they are versions of one type.
#[derive(Clone, Copy)]
pub struct UserType(&'static Definition);

impl UserType {
    /// The definition, for constant functions.
    pub const fn definition(self) -> &'static Definition {
        self.0
    }

    /// Whether it is a composite type.
    pub const fn is_composite(self) -> bool {
        self.0.attributes.is_some()
    }

    /// The attributes of a composite type that are there, with their places in a value.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = (usize, &'static Attribute)> {
        let all = self.0.attributes.unwrap_or_default().iter().enumerate();
        all.filter(|(_, a)| !a.dropped)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// The label of this rank; none when it came with a later version.
    pub fn label(self, rank: u64) -> Option<&'static str> {
        let labels = self.0.labels;
        let at = labels.binary_search_by_key(&rank, |l| l.rank).ok()?;
        Some(&labels[at].name)
    }

    /// The rank of the label with this name.
    pub fn rank(self, name: &str) -> Option<u64> {
        self.0
            .labels
            .iter()
            .find(|l| l.name == name)
            .map(|l| l.rank)
    }
}

impl Deref for UserType {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        self.0
    }
}

impl PartialEq for UserType {
    fn eq(&self, other: &UserType) -> bool {
        self.0.oid == other.0.oid
    }
}

impl Eq for UserType {}

impl Hash for UserType {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.oid.hash(h);
    }
}

impl fmt::Debug for UserType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

#[derive(Default)]
struct Interned {
    versions: HashMap<Oid, Vec<UserType>>,
    bytes: usize,
}

static INTERNED: Mutex<Option<Interned>> = Mutex::new(None);

/// The enum of this definition; `labels` are in order of rank.
pub fn intern(oid: Oid, array: Oid, name: &str, labels: &[Label]) -> UserType {
    intern_any((oid, array), name, labels, None)
}

/// The composite type of this definition.
pub fn intern_composite(oid: Oid, array: Oid, name: &str, attributes: &[Attribute]) -> UserType {
    intern_any((oid, array), name, &[], Some(attributes))
}

fn intern_any(
    (oid, array): (Oid, Oid),
    name: &str,
    labels: &[Label],
    attributes: Option<&[Attribute]>,
) -> UserType {
    let mut all = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    let versions = all.versions.entry(oid).or_default();
    let alike = |a: &[Attribute], b: &[Attribute]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
    };
    let same = |t: &&UserType| {
        let parts = match (t.attributes, attributes) {
            (Some(a), Some(b)) => alike(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        t.array == array && t.name == name && t.labels == labels && parts
    };
    if let Some(t) = versions.iter().find(same) {
        return *t;
    }
    let text = |s: String| -> &'static str { Box::leak(s.into_boxed_str()) };
    let made = UserType(Box::leak(Box::new(Definition {
        oid,
        array,
        name: text(name.to_owned()),
        array_name: text(format!("_{name}")),
        labels: Box::leak(labels.to_vec().into_boxed_slice()),
        attributes: attributes.map(|a| &*Box::leak(a.to_vec().into_boxed_slice())),
    })));
    versions.push(made);
    let of_labels = labels.iter().map(|l| size_of::<Label>() + l.name.len());
    let parts = attributes.unwrap_or_default().iter();
    let of_parts = parts.map(|a| size_of::<Attribute>() + a.name.len());
    all.bytes += 100 + 2 * name.len() + of_labels.sum::<usize>() + of_parts.sum::<usize>();
    made
}

/// Bytes of all definitions, about.
pub fn interned_bytes() -> usize {
    let all = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref().map_or(0, |a| a.bytes)
}

/// Ranks for `n` labels that are made together.
pub fn ranks(n: usize) -> impl Iterator<Item = u64> {
    (1..=n as u64).map(|i| i * STEP)
}

/// The rank of a label between two neighbours, of which either may be missing; none when there is no room. A quarter of the way, because
/// labels are mostly added in front of the same last one.
pub fn rank_between(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    let low = before.unwrap_or(0);
    match after {
        None => low.checked_add(STEP),
        Some(high) => {
            let room = high - low;
            (room > 1).then(|| low + (room / 4).max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(id: Oid, rank: u64, name: &str) -> Label {
        let name = name.into();
        Label { id, rank, name }
    }

    #[test]
    fn equal_definitions_are_one_and_versions_are_equal_types() {
        let (a, b) = (label(1, 10, "sad"), label(2, 20, "ok"));
        let one = intern(90001, 90002, "mood", std::slice::from_ref(&a));
        let again = intern(90001, 90002, "mood", std::slice::from_ref(&a));
        assert!(std::ptr::eq(one.definition(), again.definition()));
        let later = intern(90001, 90002, "mood", &[a, b]);
        assert_eq!(one, later);
        assert_eq!((one.label(20), later.label(20)), (None, Some("ok")));
        assert_eq!(later.rank("ok"), Some(20));
        assert_eq!(later.array_name, "_mood");
    }

    #[test]
    fn a_composite_type_follows_the_versions_of_its_parts() {
        let part = |ty| Attribute {
            name: "m".into(),
            ty: ColumnType::plain(ty),
            dropped: false,
        };
        let mood = |labels: &[Label]| Type::User(intern(90011, 90012, "mood", labels));
        let of = |ty| intern_composite(90013, 90014, "pair", &[part(Type::Int4), part(ty)]);
        let (old, new) = (mood(&[]), mood(&[label(3, 10, "sad")]));
        let (a, b) = (of(old), of(new));
        assert!(a == b && !std::ptr::eq(a.definition(), b.definition()));
        assert!(std::ptr::eq(of(new).definition(), b.definition()));
        assert!(a.is_composite() && a.attributes().len() == 2);
    }

    #[test]
    fn there_is_room_between_neighbours() {
        let all: Vec<u64> = ranks(3).collect();
        assert!(all.is_sorted() && all[0] > 0);
        assert!(rank_between(Some(all[2]), None).unwrap() > all[2]);
        assert!(rank_between(None, Some(all[0])).unwrap() < all[0]);
        assert_eq!(rank_between(Some(7), Some(8)), None);
        assert!(
            ranks(MAX_LABELS)
                .last()
                .unwrap()
                .checked_add(STEP)
                .is_some()
        );
        // Each before the one that was added last; each in front of the same one.
        let (mut high, mut down) = (all[1], 0);
        while let Some(r) = rank_between(Some(all[0]), Some(high)) {
            (high, down) = (r, down + 1);
        }
        let (mut low, mut up) = (all[0], 0);
        while let Some(r) = rank_between(Some(low), Some(all[1])) {
            (low, up) = (r, up + 1);
        }
        assert!(down >= WORST_ROOM && up > 100, "{down}, {up}");
    }
}
