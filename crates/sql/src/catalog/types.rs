//! Types and functions: `pg_type`, `pg_proc`, `pg_operator`, `pg_am`, `pg_cast` and what never changes.
//!
//! The rows of types and of their input and output functions are PostgreSQL's own, numbers included (drivers recognise arrays by
//! `typreceive = array_recv`). Other functions come from the registry and are numbered in order of name.

use super::relations::Rows;
use super::rows::*;
use super::{CatalogScan, DATABASE_OID};
use crate::functions::registry;
use crate::functions::signature::{Entry, Sig};
use crate::functions::{Kind, Volatility};
use base::schema::{BOOTSTRAP_ROLE, PG_CATALOG};
use base::{Oid, Result, Type, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// First number of the registry's functions: PostgreSQL leaves 8000 to 9999 free.
const FIRST_FUNCTION: Oid = 8000;
/// Number of the extension that tools look for.
pub const PLPGSQL: Oid = 13563;
const INTERNAL_LANGUAGE: Oid = 12;

/// What the catalogs say of a type beside its name.
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub by_value: bool,
    pub align: u8,
    pub storage: u8,
    pub collation: Oid,
}

/// One line of `types.txt`: the words in its order.
static TYPES: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| table(include_str!("types.txt")));

/// number, name, result, count of arguments, arguments
static TYPE_FUNCTIONS: LazyLock<Vec<Vec<&'static str>>> =
    LazyLock::new(|| table(include_str!("type_functions.txt")));

static INFO: LazyLock<HashMap<Oid, Info>> = LazyLock::new(|| {
    let info = |w: &Vec<&str>| Info {
        by_value: w[3] == "1",
        align: w[16].as_bytes()[0],
        storage: w[17].as_bytes()[0],
        collation: number(w[18]),
    };
    TYPES.iter().map(|w| (number(w[0]), info(w))).collect()
});

fn table(text: &'static str) -> Vec<Vec<&'static str>> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines.map(|l| l.split(' ').collect()).collect()
}

fn number(s: &str) -> Oid {
    s.parse().expect("the table holds numbers")
}

pub(super) fn info(ty: Type) -> Info {
    let label = matches!(ty, Type::User(u) if !u.is_composite());
    INFO.get(&ty.oid()).copied().unwrap_or(Info {
        by_value: label,
        align: b'i',
        storage: if label { b'p' } else { b'x' },
        collation: 0,
    })
}

/// `typcategory`, `typoutput` and `typsend` of a type.
pub(super) fn category_and_output(ty: Type) -> (u8, Oid, Oid) {
    let id = ty.oid().to_string();
    let line = TYPES.iter().find(|w| w[0] == id);
    line.map_or((b'E', 3507, 3533), |w| {
        (w[5].as_bytes()[0], number(w[11]), number(w[13]))
    })
}

pub(super) fn pg_type(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for w in TYPES.iter() {
        let n = |i: usize| oid(number(w[i]));
        let flag = |i: usize| Value::Bool(w[i] == "1");
        let letter = |i: usize| char(w[i].as_bytes()[0]);
        rows.push(&[
            ("oid", n(0)),
            ("typname", text(w[1])),
            ("typnamespace", oid(PG_CATALOG)),
            ("typowner", oid(BOOTSTRAP_ROLE)),
            ("typlen", Value::Int2(w[2].parse().expect("a number"))),
            ("typbyval", flag(3)),
            ("typtype", letter(4)),
            ("typcategory", letter(5)),
            ("typispreferred", flag(6)),
            ("typisdefined", Value::Bool(true)),
            ("typdelim", letter(7)),
            ("typelem", n(8)),
            ("typarray", n(9)),
            ("typinput", n(10)),
            ("typoutput", n(11)),
            ("typreceive", n(12)),
            ("typsend", n(13)),
            ("typmodin", n(14)),
            ("typmodout", n(15)),
            ("typalign", letter(16)),
            ("typstorage", letter(17)),
            ("typcollation", n(18)),
            ("typsubscript", n(19)),
            ("typtypmod", Value::Int4(-1)),
        ]);
    }
    extension_types(cx, rows);
    super::user_types::pg_type(cx, rows);
    Ok(())
}

/// The registry's functions in the order in which they are numbered.
static FUNCTIONS: LazyLock<Vec<&'static Entry>> = LazyLock::new(|| {
    let mut all: Vec<&Entry> = registry::all_functions().collect();
    all.sort_by_key(|e| {
        (
            e.name,
            e.args.iter().map(|a| sig_oid(*a)).collect::<Vec<_>>(),
        )
    });
    all
});

/// The number of the type that a signature names, pseudo-types included.
pub(super) fn sig_oid(s: Sig) -> Oid {
    match s {
        Sig::Is(t) => t.oid(),
        Sig::Any => 2276,
        Sig::AnyArray => 2277,
        Sig::AnyElement => 2283,
        Sig::AnyNonArray => 2776,
        Sig::AnyEnum => 3500,
        Sig::AnyCompatible => 5077,
        Sig::AnyCompatibleArray => 5078,
        Sig::AnyCompatibleNonArray => 5079,
    }
}

pub(super) fn pg_proc(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut push = |id: Oid, name: &str, args: Vec<Oid>, ret: Oid, more: &[(&str, Value)]| {
        let mut row = vec![
            ("oid", oid(id)),
            ("proname", text(name)),
            ("pronamespace", oid(PG_CATALOG)),
            ("proowner", oid(BOOTSTRAP_ROLE)),
            ("prolang", oid(INTERNAL_LANGUAGE)),
            ("procost", Value::Float4(1.0)),
            ("prokind", char(b'f')),
            ("proisstrict", Value::Bool(true)),
            ("provolatile", char(b'i')),
            ("proparallel", char(b's')),
            ("pronargs", Value::Int2(args.len() as i16)),
            ("prorettype", oid(ret)),
            (
                "proargtypes",
                vector(Type::Oid, args.into_iter().map(oid).collect()),
            ),
            ("prosrc", text(name)),
        ];
        row.extend_from_slice(more);
        rows.push(&row);
    };
    for w in TYPE_FUNCTIONS.iter() {
        let args = w[4..].iter().filter(|a| !a.is_empty()).map(|a| number(a));
        push(number(w[0]), w[1], args.collect(), number(w[2]), &[]);
    }
    for (i, e) in FUNCTIONS.iter().enumerate() {
        let of = registry::extension_of(e.name);
        if of.is_some_and(|x| cx.schema().extension(x).is_none()) {
            continue;
        }
        let kind = match e.kind {
            Kind::Aggregate(_) => b'a',
            Kind::Window(_) => b'w',
            _ => b'f',
        };
        let set = matches!(e.kind, Kind::SetReturning(_));
        let volatility = match e.volatility {
            Volatility::Immutable => b'i',
            Volatility::Stable => b's',
            Volatility::Volatile => b'v',
        };
        let variadic = match (e.variadic, e.args.last()) {
            (true, Some(a)) => sig_oid(*a),
            _ => 0,
        };
        let args = e.args.iter().map(|a| sig_oid(*a)).collect();
        push(
            FIRST_FUNCTION + i as Oid,
            e.name,
            args,
            sig_oid(e.ret),
            &[
                ("prokind", char(kind)),
                ("proisstrict", Value::Bool(e.strict)),
                ("proretset", Value::Bool(set)),
                ("prorows", Value::Float4(if set { 1000.0 } else { 0.0 })),
                ("provolatile", char(volatility)),
                ("provariadic", oid(variadic)),
            ],
        );
    }
    Ok(())
}

/// Names and numbers of all functions.
pub(super) fn procedures() -> impl Iterator<Item = (Oid, &'static str)> {
    let fixed = TYPE_FUNCTIONS.iter().map(|w| (number(w[0]), w[1]));
    let numbered = FUNCTIONS.iter().enumerate();
    fixed.chain(numbered.map(|(i, e)| (FIRST_FUNCTION + i as Oid, e.name)))
}

/// The registry's entry of a function's number.
pub(super) fn function(id: Oid) -> Option<&'static Entry> {
    FUNCTIONS
        .get(id.checked_sub(FIRST_FUNCTION)? as usize)
        .copied()
}

pub(super) fn pg_aggregate(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (i, e) in FUNCTIONS.iter().enumerate() {
        if matches!(e.kind, Kind::Aggregate(_)) {
            rows.push(&[
                ("aggfnoid", oid(FIRST_FUNCTION + i as Oid)),
                ("aggkind", char(b'n')),
                ("aggfinalmodify", char(b'r')),
                ("aggmfinalmodify", char(b'r')),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_operator(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut all: Vec<&Entry> = registry::all_operators().collect();
    all.sort_by_key(|e| {
        (
            e.name,
            e.args.iter().map(|a| sig_oid(*a)).collect::<Vec<_>>(),
        )
    });
    for (i, e) in all.into_iter().enumerate() {
        let (left, right) = match e.args.as_slice() {
            [one] => (0, sig_oid(*one)),
            [l, r, ..] => (sig_oid(*l), sig_oid(*r)),
            [] => (0, 0),
        };
        rows.push(&[
            ("oid", oid(FIRST_FUNCTION + i as Oid)),
            ("oprname", text(e.name)),
            ("oprnamespace", oid(PG_CATALOG)),
            ("oprowner", oid(BOOTSTRAP_ROLE)),
            ("oprkind", char(if left == 0 { b'l' } else { b'b' })),
            ("oprleft", oid(left)),
            ("oprright", oid(right)),
            ("oprresult", oid(sig_oid(e.ret))),
        ]);
    }
    Ok(())
}

pub(super) fn pg_am(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (id, name, kind) in [(2, "heap", b't'), (403, "btree", b'i')] {
        rows.push(&[
            ("oid", oid(id)),
            ("amname", text(name)),
            ("amtype", char(kind)),
        ]);
    }
    Ok(())
}

/// number, name, family, type, whether it is the type's default
const OPERATOR_CLASSES: &[(Oid, &str, Oid, Type, bool)] = &[
    (10003, "bool_ops", 424, Type::Bool, true),
    (10004, "bpchar_ops", 426, Type::Bpchar, true),
    (10006, "bytea_ops", 428, Type::Bytea, true),
    (10007, "char_ops", 429, Type::Char, true),
    (3122, "date_ops", 434, Type::Date, true),
    (10012, "float4_ops", 1970, Type::Float4, true),
    (3123, "float8_ops", 1970, Type::Float8, true),
    (1979, "int2_ops", 1976, Type::Int2, true),
    (1978, "int4_ops", 1976, Type::Int4, true),
    (3124, "int8_ops", 1976, Type::Int8, true),
    (10022, "interval_ops", 1982, Type::Interval, true),
    (10028, "name_ops", 1994, Type::Name, true),
    (3125, "numeric_ops", 1988, Type::Numeric, true),
    (1981, "oid_ops", 1989, Type::Oid, true),
    (3126, "text_ops", 1994, Type::Text, true),
    (10038, "time_ops", 1996, Type::Time, true),
    (3127, "timestamptz_ops", 434, Type::TimestampTz, true),
    (10042, "varchar_ops", 1994, Type::Text, false),
    (3128, "timestamp_ops", 434, Type::Timestamp, true),
    (10065, "uuid_ops", 2968, Type::Uuid, true),
    (10002, "bit_ops", 423, Type::Bit, true),
    (10009, "cidr_ops", 1974, Type::Inet, false),
    (10015, "inet_ops", 1974, Type::Inet, true),
    (10024, "macaddr_ops", 1984, Type::MacAddr, true),
    (10026, "macaddr8_ops", 3371, Type::MacAddr8, true),
    (10041, "timetz_ops", 2000, Type::TimeTz, true),
    (10043, "varbit_ops", 2002, Type::VarBit, true),
];

/// `enum_ops`, over `anyenum`.
const ENUM_CLASS: Oid = 10046;

/// The operator class that an index over this type has; 0 for none.
pub(super) fn operator_class(ty: Type) -> Oid {
    let ty = match ty {
        Type::Varchar => Type::Text,
        Type::Cidr => Type::Inet,
        Type::User(u) if u.is_composite() => return 0,
        Type::User(_) => return ENUM_CLASS,
        ty => ty,
    };
    let all = OPERATOR_CLASSES.iter();
    all.filter(|c| c.3 == ty && c.4)
        .map(|c| c.0)
        .next()
        .unwrap_or(0)
}

pub(super) fn pg_opclass(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (id, name, family, ty, default) in OPERATOR_CLASSES {
        rows.push(&[
            ("oid", oid(*id)),
            ("opcmethod", oid(403)),
            ("opcname", text(name)),
            ("opcnamespace", oid(PG_CATALOG)),
            ("opcowner", oid(BOOTSTRAP_ROLE)),
            ("opcfamily", oid(*family)),
            ("opcintype", oid(ty.oid())),
            ("opcdefault", Value::Bool(*default)),
        ]);
    }
    rows.push(&[
        ("oid", oid(ENUM_CLASS)),
        ("opcmethod", oid(403)),
        ("opcname", text("enum_ops")),
        ("opcnamespace", oid(PG_CATALOG)),
        ("opcowner", oid(BOOTSTRAP_ROLE)),
        ("opcfamily", oid(3522)),
        ("opcintype", oid(3500)),
        ("opcdefault", Value::Bool(true)),
    ]);
    Ok(())
}

pub(super) fn pg_opfamily(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut seen = vec![];
    for (_, name, family, _, _) in OPERATOR_CLASSES {
        if seen.contains(family) {
            continue;
        }
        seen.push(*family);
        rows.push(&[
            ("oid", oid(*family)),
            ("opfmethod", oid(403)),
            ("opfname", text(name)),
            ("opfnamespace", oid(PG_CATALOG)),
            ("opfowner", oid(BOOTSTRAP_ROLE)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_cast(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    use crate::types::cast::{CastKind, find};
    let mut id = FIRST_FUNCTION;
    for &from in Type::ALL {
        for &to in Type::ALL {
            let hidden = |t: Type| {
                let of = t.extension();
                of.is_some_and(|e| cx.schema().extension(e).is_none())
            };
            if from == to || from == Type::Unknown || hidden(from) || hidden(to) {
                continue;
            }
            let context = match find(from, to) {
                None => continue,
                Some(CastKind::Implicit) => b'i',
                Some(CastKind::Assignment) => b'a',
                Some(CastKind::Explicit) => b'e',
            };
            id += 1;
            rows.push(&[
                ("oid", oid(id)),
                ("castsource", oid(from.oid())),
                ("casttarget", oid(to.oid())),
                ("castcontext", char(context)),
                ("castmethod", char(b'f')),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_language(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (id, name) in [(12, "internal"), (13, "c"), (14, "sql")] {
        rows.push(&[
            ("oid", oid(id)),
            ("lanname", text(name)),
            ("lanowner", oid(BOOTSTRAP_ROLE)),
            ("lanpltrusted", Value::Bool(name == "sql")),
        ]);
    }
    Ok(())
}

pub(super) fn pg_collation(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (id, name, provider) in [
        (100, "default", b'd'),
        (950, "C", b'c'),
        (951, "POSIX", b'c'),
    ] {
        let locale = (provider == b'c').then_some(name);
        rows.push(&[
            ("oid", oid(id)),
            ("collname", text(name)),
            ("collnamespace", oid(PG_CATALOG)),
            ("collowner", oid(BOOTSTRAP_ROLE)),
            ("collprovider", char(provider)),
            ("collisdeterministic", Value::Bool(true)),
            ("collencoding", Value::Int4(-1)),
            ("collcollate", maybe(locale)),
            ("collctype", maybe(locale)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_tablespace(_: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (id, name) in [(1663, "pg_default"), (1664, "pg_global")] {
        rows.push(&[
            ("oid", oid(id)),
            ("spcname", text(name)),
            ("spcowner", oid(BOOTSTRAP_ROLE)),
        ]);
    }
    Ok(())
}

/// `plpgsql` is a name only, for which tools look.
pub(super) fn pg_extension(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for e in cx.schema().extensions() {
        rows.push(&[
            ("oid", oid(e.id)),
            ("extname", text(&e.name)),
            ("extowner", oid(e.owner)),
            ("extnamespace", oid(e.namespace)),
            ("extrelocatable", Value::Bool(true)),
            ("extversion", text(&e.version)),
        ]);
    }
    rows.push(&[
        ("oid", oid(PLPGSQL)),
        ("extname", text("plpgsql")),
        ("extowner", oid(BOOTSTRAP_ROLE)),
        ("extnamespace", oid(PG_CATALOG)),
        ("extversion", text("1.0")),
    ]);
    Ok(())
}

/// The extensions that can be made, and `plpgsql`.
fn available() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let known = crate::extensions::KNOWN.iter();
    let plpgsql = ("plpgsql", "1.0", "PL/pgSQL procedural language");
    known
        .map(|k| (k.name, k.version, k.comment))
        .chain([plpgsql])
}

pub(super) fn pg_available_extensions(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (name, version, comment) in available() {
        let there = name == "plpgsql" || cx.schema().extension(name).is_some();
        rows.push(&[
            ("name", text(name)),
            ("default_version", text(version)),
            ("installed_version", maybe(there.then_some(version))),
            ("comment", text(comment)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_available_extension_versions(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (name, version, comment) in available() {
        let there = name == "plpgsql" || cx.schema().extension(name).is_some();
        rows.push(&[
            ("name", text(name)),
            ("version", text(version)),
            ("installed", Value::Bool(there)),
            ("superuser", Value::Bool(true)),
            ("trusted", Value::Bool(true)),
            ("relocatable", Value::Bool(name != "plpgsql")),
            ("comment", text(comment)),
        ]);
    }
    Ok(())
}

/// The type `citext`, where its extension is there.
fn extension_types(cx: &CatalogScan<'_>, rows: &mut Rows) {
    let Some(e) = cx.schema().extension("citext") else {
        return;
    };
    for (ty, category, io) in [
        (Type::Citext, b'S', [46, 47, 2414, 2415]),
        (Type::CitextArray, b'A', [750, 751, 2400, 2401]),
    ] {
        let element = ty.element().map_or(0, Type::oid);
        rows.push(&[
            ("oid", oid(ty.oid())),
            ("typname", text(ty.typname())),
            ("typnamespace", oid(e.namespace)),
            ("typowner", oid(e.owner)),
            ("typlen", Value::Int2(-1)),
            ("typbyval", Value::Bool(false)),
            ("typtype", char(b'b')),
            ("typcategory", char(category)),
            ("typisdefined", Value::Bool(true)),
            ("typdelim", char(b',')),
            ("typelem", oid(element)),
            ("typarray", oid(ty.array_oid())),
            ("typinput", oid(io[0])),
            ("typoutput", oid(io[1])),
            ("typreceive", oid(io[2])),
            ("typsend", oid(io[3])),
            ("typalign", char(b'i')),
            ("typstorage", char(b'x')),
            ("typcollation", oid(100)),
            ("typsubscript", oid(if element == 0 { 0 } else { 6179 })),
            ("typtypmod", Value::Int4(-1)),
        ]);
    }
}

pub(super) fn pg_database(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    rows.push(&[
        ("oid", oid(DATABASE_OID)),
        ("datname", text(cx.facts.database())),
        ("datdba", oid(BOOTSTRAP_ROLE)),
        ("encoding", Value::Int4(6)),
        ("datlocprovider", char(b'c')),
        ("datallowconn", Value::Bool(true)),
        ("datconnlimit", Value::Int4(-1)),
        ("dattablespace", oid(1663)),
        ("datcollate", text("C.UTF-8")),
        ("datctype", text("C.UTF-8")),
    ]);
    Ok(())
}

/// The number of a pseudo-type, which no column may have and a `regtype` may name: `trigger`, `anyarray`.
pub(super) fn pseudo_type(named: &str) -> Option<Oid> {
    let named = named.trim();
    let bare = named.strip_prefix("pg_catalog.").unwrap_or(named);
    let line = TYPES.iter().find(|w| w[1] == bare && w[4] == "p");
    line.map(|w| number(w[0]))
}

/// `typname` by number, pseudo-types included.
pub(super) fn name(id: Oid) -> Option<&'static str> {
    let id = id.to_string();
    TYPES.iter().find(|w| w[0] == id).map(|w| w[1])
}
