//! The table of all functions and operators, built once. Each group of functions adds its own lines.

use super::effect::Effect;
use super::signature::{Entry, Sig};
use super::{AccumulatorFn, AggregateId, Kind, RowsFn, ScalarFn, TypedFn, Volatility};
use base::Type;
use foldhash::{HashMap, HashSet};
use std::sync::LazyLock;

/// Names for [`Sig`]s and volatilities, so that a line of the table reads like SQL.
pub(super) mod names {
    use super::*;

    macro_rules! sigs {
        ($($n:ident $t:ident;)*) => { $(pub const $n: Sig = Sig::Is(Type::$t);)* };
    }
    sigs! {
        BOOL Bool; INT2 Int2; INT4 Int4; INT8 Int8; FLOAT4 Float4; FLOAT8 Float8; NUMERIC Numeric; TEXT Text;
        BPCHAR Bpchar; CHAR Char; NAME Name; BYTEA Bytea; UUID Uuid; DATE Date; TIME Time;
        TIMESTAMP Timestamp; TIMESTAMPTZ TimestampTz; INTERVAL Interval; JSON Json; JSONB Jsonb; OID Oid;
        REGCLASS RegClass; REGTYPE RegType; REGPROC RegProc; REGNAMESPACE RegNamespace; VOID Void; RECORD Record;
        INT4ARRAY Int4Array; FLOAT8ARRAY Float8Array; TEXTARRAY TextArray; NAMEARRAY NameArray; OIDVECTOR OidVector;
        CITEXT Citext; TIMETZ TimeTz; BIT Bit; VARBIT VarBit; INET Inet; CIDR Cidr; MACADDR MacAddr; MACADDR8 MacAddr8;
        PGNODETREE PgNodeTree; TID Tid; XID Xid; INT2VECTOR Int2Vector; INT2ARRAY Int2Array; OIDARRAY OidArray; ACLITEMARRAY AclItemArray;
    }
    pub const ANYELEMENT: Sig = Sig::AnyElement;
    pub const ANYARRAY: Sig = Sig::AnyArray;
    pub const ANYNONARRAY: Sig = Sig::AnyNonArray;
    pub const ANYENUM: Sig = Sig::AnyEnum;
    pub const ANYCOMPATIBLE: Sig = Sig::AnyCompatible;
    pub const ANYCOMPATIBLEARRAY: Sig = Sig::AnyCompatibleArray;
    pub const ANY: Sig = Sig::Any;

    /// Volatility, and whether NULL in gives NULL out.
    pub type Flags = (Volatility, bool);
    pub const IMM: Flags = (Volatility::Immutable, true);
    pub const STA: Flags = (Volatility::Stable, true);
    pub const VOL: Flags = (Volatility::Volatile, true);
    pub const IMM_N: Flags = (Volatility::Immutable, false);
    pub const STA_N: Flags = (Volatility::Stable, false);
    pub const VOL_N: Flags = (Volatility::Volatile, false);
}

/// The table while it is being filled.
#[derive(Default)]
pub(super) struct Registry {
    map: HashMap<&'static str, Vec<Entry>>,
    /// Those that look into the catalog.
    lookups: HashSet<&'static str>,
    /// Those that are there with an extension alone.
    extensions: HashMap<&'static str, &'static str>,
}

impl Registry {
    pub fn add(
        &mut self,
        name: &'static str,
        args: &[Sig],
        ret: Sig,
        fl: names::Flags,
        kind: Kind,
    ) {
        self.map.entry(name).or_default().push(Entry {
            name,
            args: args.to_vec(),
            variadic: false,
            ret,
            strict: fl.1,
            volatility: fl.0,
            kind,
            columns: &[],
            effect: Effect::default(),
        });
    }

    fn last(&mut self, name: &'static str) -> &mut Entry {
        let list = self.map.get_mut(name).expect("just added");
        list.last_mut().expect("just added")
    }

    /// A function of values.
    pub fn f(&mut self, n: &'static str, args: &[Sig], ret: Sig, fl: names::Flags, f: ScalarFn) {
        self.add(n, args, ret, fl, Kind::Scalar(f));
    }

    /// A function of values and their types.
    pub fn t(&mut self, n: &'static str, args: &[Sig], ret: Sig, fl: names::Flags, f: TypedFn) {
        self.add(n, args, ret, fl, Kind::Typed(f));
    }

    /// What the functions of these names, which are in the table already, do beside their answer.
    pub fn does(&mut self, effect: Effect, names: &[&'static str]) {
        for name in names {
            let all = self.map.get_mut(name).expect("a function that was added");
            all.iter_mut().for_each(|f| f.effect = effect);
        }
    }

    /// The functions of these names are there with this extension alone. Other functions of the names there must not be.
    pub fn belong(&mut self, extension: &'static str, names: &[&'static str]) {
        for name in names {
            assert!(self.map.contains_key(name), "a function that was added");
            self.extensions.insert(*name, extension);
        }
    }

    /// A function whose answer stands in the catalog.
    pub fn lookup(&mut self, n: &'static str, args: &[Sig], ret: Sig, f: TypedFn) {
        self.lookups.insert(n);
        self.t(n, args, ret, names::STA, f);
    }

    /// A typed function whose last argument repeats.
    pub fn variadic(
        &mut self,
        n: &'static str,
        args: &[Sig],
        ret: Sig,
        fl: names::Flags,
        f: TypedFn,
    ) {
        self.add(n, args, ret, fl, Kind::Typed(f));
        self.last_is_variadic(n);
    }

    /// The last argument of the function that was added last under this name may be repeated.
    pub fn last_is_variadic(&mut self, n: &'static str) {
        self.last(n).variadic = true;
    }

    /// An aggregate.
    pub fn agg(&mut self, name: &'static str, args: &[Sig], ret: Sig, new: AccumulatorFn) {
        let kind = Kind::Aggregate(AggregateId { name, new });
        self.add(name, args, ret, names::IMM_N, kind);
    }

    /// A function that returns a set of plain values.
    pub fn set(&mut self, n: &'static str, args: &[Sig], ret: Sig, fl: names::Flags, f: RowsFn) {
        self.add(n, args, ret, fl, Kind::SetReturning(f));
    }

    /// A function that returns a set of records with these columns.
    pub fn records(
        &mut self,
        n: &'static str,
        args: &[Sig],
        columns: &'static [(&'static str, Type)],
        fl: names::Flags,
        f: RowsFn,
    ) {
        self.add(n, args, names::RECORD, fl, Kind::SetReturning(f));
        self.last(n).columns = columns;
    }
}

static OPERATORS: LazyLock<Registry> = LazyLock::new(|| {
    let mut r = Registry::default();
    super::operators::register(&mut r);
    super::bits::register_operators(&mut r);
    super::network::register_operators(&mut r);
    super::timetz::register_operators(&mut r);
    super::citext::register_operators(&mut r);
    r
});

static FUNCTIONS: LazyLock<Registry> = LazyLock::new(|| {
    let mut r = Registry::default();
    super::advisory::register(&mut r);
    super::aggregate::register(&mut r);
    super::jsonb::register(&mut r);
    super::json_assign::register(&mut r);
    super::json_records::register(&mut r);
    super::json_text::register(&mut r);
    super::math::register(&mut r);
    super::bits::register(&mut r);
    super::network::register(&mut r);
    super::timetz::register(&mut r);
    super::citext::register(&mut r);
    super::crypto::register(&mut r);
    super::uuids::register(&mut r);
    super::array::register(&mut r);
    super::array::register_assignment(&mut r);
    super::bytes::register(&mut r);
    super::datetime::register(&mut r);
    super::degrees::register(&mut r);
    super::enums::register(&mut r);
    super::ordered_set::register(&mut r);
    super::overlaps::register(&mut r);
    super::pattern::register(&mut r);
    super::sets::register(&mut r);
    super::spelled::register(&mut r);
    super::string::register(&mut r);
    super::system::register(&mut r);
    super::to_number::register(&mut r);
    super::tools::register(&mut r);
    super::window::register(&mut r);
    r
});

/// All operators of this symbol.
pub fn operators(op: &str) -> &'static [Entry] {
    OPERATORS.map.get(op).map_or(&[], Vec::as_slice)
}

/// All functions of this name.
pub fn functions(name: &str) -> &'static [Entry] {
    FUNCTIONS.map.get(name).map_or(&[], Vec::as_slice)
}

/// The extension that the functions of this name come with; built-in ones have none.
pub fn extension_of(name: &str) -> Option<&'static str> {
    FUNCTIONS.extensions.get(name).copied()
}

/// The functions that come with an extension.
pub fn of_extension(extension: &str) -> impl Iterator<Item = &'static str> {
    let all = FUNCTIONS.extensions.iter();
    all.filter(move |(_, e)| **e == extension).map(|(n, _)| *n)
}

/// Whether the answer of this function stands in the catalog.
pub fn is_lookup(name: &str) -> bool {
    FUNCTIONS.lookups.contains(name) || name.starts_with("to_reg")
}

/// Every function, in no order: for the catalog's `pg_proc`.
pub fn all_functions() -> impl Iterator<Item = &'static Entry> {
    FUNCTIONS.map.values().flatten()
}

/// Every operator, in no order: for the catalog's `pg_operator`.
pub fn all_operators() -> impl Iterator<Item = &'static Entry> {
    OPERATORS.map.values().flatten()
}

/// What the functions of this name do, in any case of letters.
pub fn effect(name: &str) -> Effect {
    // No name of the registry is longer than a name of PostgreSQL.
    let mut lower = [0; 63];
    let Some(lower) = lower.get_mut(..name.len()) else {
        return Effect::default();
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let name = std::str::from_utf8(lower).expect("letters outside of ASCII stay as they are");
    let found = functions(name).first();
    found.map(|f| f.effect).unwrap_or_default()
}
