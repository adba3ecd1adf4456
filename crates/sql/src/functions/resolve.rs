//! Which function a call means: PostgreSQL's rules (its manual, chapter 10; `func_select_candidate`).
//!
//! 1. A candidate whose declared types are exactly the arguments' wins; for operators an unknown literal is first taken
//!    to have the type of the other side.
//! 2. Otherwise candidates that implicit casts can reach are kept, and thinned: most exact matches; most exact matches or
//!    preferred types; then, for unknown literals, the category that all candidates agree on (strings win a
//!    disagreement) and its preferred type; last, unknown literals take the one type that the known arguments have.
//! 3. None left: 42883. Several left: 42725.

use super::registry;
use super::signature::{Entry, Sig};
use super::{Kind, Resolved, Volatility};
use crate::types::cast::{self, CastKind};
use crate::types::typename::{format_type, from_sql_name};
use base::{Error, Result, SqlState, Type};

/// Finds the operator `left op right`, or prefix `op right`. 42883 or 42725 with PostgreSQL's message and hint.
pub fn lookup_operator(op: &str, left: Option<Type>, right: Type) -> Result<Resolved> {
    let args: Vec<Type> = left.into_iter().chain([right]).collect();
    let shown = || match left {
        Some(l) => format!("{} {op} {}", format_type(l, -1), format_type(right, -1)),
        None => format!("{op} {}", format_type(right, -1)),
    };
    let all = registry::operators(op);
    let mut exact = args.clone();
    if let [l, r] = &mut exact[..] {
        if *l == Type::Unknown {
            *l = *r;
        } else if *r == Type::Unknown {
            *r = *l;
        }
    }
    if let Some(f) = super::composite::comparison(op, &exact) {
        return Ok(f);
    }
    let hit = all.iter().find(|e| is_exact(e, &exact));
    if let Some(e) = hit {
        return resolve(e, &exact);
    }
    match choose(all, &args) {
        Choice::One(e) => resolve(e, &args),
        Choice::None => Err(Error::new(
            SqlState::UNDEFINED_FUNCTION,
            format!("operator does not exist: {}", shown()),
        )
        .hint(
            "No operator matches the given name and argument types. You might need to add explicit type casts.",
        )),
        Choice::Many => Err(Error::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("operator is not unique: {}", shown()),
        )
        .hint(
            "Could not choose a best candidate operator. You might need to add explicit type casts.",
        )),
    }
}

/// Finds `left op ANY|ALL (array)`: the operator over the element type, with the array type that the right side is to
/// be cast to.
pub fn lookup_any_operator(op: &str, left: Type, array: Type) -> Result<(Resolved, Type)> {
    let element = match array {
        Type::Unknown => Type::Unknown,
        t => t.element().ok_or_else(|| {
            Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires array on right side",
            )
        })?,
    };
    let r = lookup_operator(op, Some(left), element)?;
    if r.ret != Type::Bool {
        return Err(Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            "op ANY/ALL (array) requires operator to yield boolean",
        ));
    }
    let to = r.args[1].array_of().or_else(|| {
        // A string array may serve where the operator takes another string type.
        r.args[1].is_string().then_some(Type::TextArray)
    });
    let to = to.ok_or_else(|| {
        Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!(
                "could not find array type for data type {}",
                format_type(r.args[1], -1)
            ),
        )
    })?;
    Ok((r, to))
}

/// Finds the function `name(args)`, aggregates and set-returning functions included, and function-style casts.
pub fn lookup_function(name: &str, args: &[Type]) -> Result<Resolved> {
    let all = registry::functions(name);
    if let Some(e) = all.iter().find(|e| is_exact(e, args)) {
        return resolve(e, args);
    }
    if let [from] = args
        && let Ok(to) = from_sql_name(name, &[], false)
        && is_type_name(name)
        && (*from == Type::Unknown || cast::find(*from, to.ty).is_some())
    {
        return Ok(Resolved {
            name: to.ty.typname(),
            args: vec![*from],
            ret: to.ty,
            strict: true,
            volatility: Volatility::Stable,
            kind: Kind::Cast,
            columns: &[],
        });
    }
    let shown = || {
        let list: Vec<String> = args.iter().map(|t| format_type(*t, -1)).collect();
        format!("function {name}({})", list.join(", "))
    };
    match choose(all, args) {
        Choice::One(e) => resolve(e, args),
        Choice::None => Err(no_function(name, args)),
        Choice::Many => Err(Error::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("{} is not unique", shown()),
        )
        .hint(
            "Could not choose a best candidate function. You might need to add explicit type casts.",
        )),
    }
}

/// 42883.
pub fn no_function(name: &str, args: &[Type]) -> Error {
    let list: Vec<String> = args.iter().map(|t| format_type(*t, -1)).collect();
    let what = format!("function {name}({}) does not exist", list.join(", "));
    Error::new(SqlState::UNDEFINED_FUNCTION, what).hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// Only `pg_type`'s own names are function-style casts (`int4(x)`, not `integer(x)`).
fn is_type_name(name: &str) -> bool {
    let mut all = Type::ALL.iter();
    all.any(|t| t.typname() == name && t.extension().is_none())
}

/// The type that UNION, CASE, COALESCE, VALUES, ARRAY[] and the like give their branches; `None` when the types do
/// not match. All unknown: text.
pub fn select_common_type(types: &[Type]) -> Option<Type> {
    let mut best = Type::Unknown;
    for &t in types {
        if t == Type::Unknown || t == best {
            continue;
        }
        if best == Type::Unknown {
            best = t;
        } else if category(t) != category(best) {
            return None;
        } else if !is_preferred(best) && implicit(best, t) && !implicit(t, best) {
            best = t;
        }
    }
    Some(if best == Type::Unknown {
        Type::Text
    } else {
        best
    })
}

/// `pg_type.typcategory`.
pub fn category(t: Type) -> char {
    match t {
        Type::Bool => 'B',
        Type::Int2
        | Type::Int4
        | Type::Int8
        | Type::Float4
        | Type::Float8
        | Type::Numeric
        | Type::Oid
        | Type::RegClass
        | Type::RegType
        | Type::RegProc
        | Type::RegNamespace => 'N',
        Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Citext => 'S',
        Type::Char | Type::PgNodeTree => 'Z',
        Type::Date | Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz => 'D',
        Type::Bit | Type::VarBit => 'V',
        Type::Inet | Type::Cidr => 'I',
        Type::Interval => 'T',
        Type::Unknown => 'X',
        Type::Void | Type::Record => 'P',
        Type::User(u) if u.is_composite() => 'C',
        Type::User(_) => 'E',
        t if t.element().is_some() => 'A',
        _ => 'U',
    }
}

/// `pg_type.typispreferred`.
pub fn is_preferred(t: Type) -> bool {
    matches!(
        t,
        Type::Bool
            | Type::Float8
            | Type::Oid
            | Type::Text
            | Type::TimestampTz
            | Type::Interval
            | Type::VarBit
            | Type::Inet
    )
}

fn sig_category(s: Sig) -> char {
    match s {
        Sig::Is(t) => category(t),
        _ => 'P',
    }
}

fn sig_is(s: Sig, t: Type) -> bool {
    s == Sig::Is(t)
}

fn sig_preferred(s: Sig) -> bool {
    matches!(s, Sig::Is(t) if is_preferred(t))
}

fn implicit(from: Type, to: Type) -> bool {
    from == to || from == Type::Unknown || matches!(cast::find(from, to), Some(CastKind::Implicit))
}

fn is_exact(e: &Entry, args: &[Type]) -> bool {
    !e.variadic
        && e.accepts(args.len())
        && args.iter().enumerate().all(|(i, &t)| sig_is(e.arg(i), t))
}

enum Choice<'a> {
    None,
    One(&'a Entry),
    Many,
}

fn choose<'a>(all: &'a [Entry], args: &[Type]) -> Choice<'a> {
    let mut c: Vec<&Entry> = all
        .iter()
        .filter(|e| e.accepts(args.len()) && reachable(e, args))
        .collect();
    match c[..] {
        [] => return Choice::None,
        [e] => return Choice::One(e),
        _ => {}
    }
    let known = |i: usize| args[i] != Type::Unknown;
    keep_best(&mut c, |e| {
        (0..args.len())
            .filter(|&i| known(i) && sig_is(e.arg(i), args[i]))
            .count()
    });
    if let [e] = c[..] {
        return Choice::One(e);
    }
    keep_best(&mut c, |e| {
        (0..args.len())
            .filter(|&i| {
                let s = e.arg(i);
                known(i)
                    && (sig_is(s, args[i])
                        || sig_preferred(s) && sig_category(s) == category(args[i]))
            })
            .count()
    });
    if let [e] = c[..] {
        return Choice::One(e);
    }
    let unknown: Vec<usize> = (0..args.len()).filter(|&i| !known(i)).collect();
    if unknown.is_empty() {
        return Choice::Many;
    }
    if let Some(slots) = unknown_categories(&c, &unknown) {
        let fits = |e: &&Entry| {
            unknown.iter().zip(&slots).all(|(&i, &(cat, preferred))| {
                let s = e.arg(i);
                sig_category(s) == cat && (!preferred || sig_preferred(s))
            })
        };
        if c.iter().any(fits) {
            c.retain(fits);
        }
        if let [e] = c[..] {
            return Choice::One(e);
        }
    }
    let mut known_types = (0..args.len()).filter(|&i| known(i)).map(|i| args[i]);
    if let Some(t) = known_types.next()
        && known_types.all(|u| u == t)
    {
        let same = vec![t; args.len()];
        c.retain(|e| reachable(e, &same));
        if let [e] = c[..] {
            return Choice::One(e);
        }
    }
    Choice::Many
}

fn keep_best(c: &mut Vec<&Entry>, score: impl Fn(&Entry) -> usize) {
    let best = c.iter().map(|e| score(e)).max().unwrap_or(0);
    c.retain(|e| score(e) == best);
}

/// For each unknown slot the category that the candidates agree on and whether one of them takes its preferred type.
fn unknown_categories(c: &[&Entry], unknown: &[usize]) -> Option<Vec<(char, bool)>> {
    let mut slots = Vec::new();
    for &i in unknown {
        let (mut cat, mut preferred, mut conflict) = (None, false, false);
        for e in c {
            let s = e.arg(i);
            let (k, p) = (sig_category(s), sig_preferred(s));
            match cat {
                None => (cat, preferred) = (Some(k), p),
                Some(x) if x == k => preferred |= p,
                Some(_) if k == 'S' => (cat, preferred) = (Some('S'), p),
                Some(_) => conflict = true,
            }
        }
        if conflict && cat != Some('S') {
            return None;
        }
        slots.push((cat?, preferred));
    }
    Some(slots)
}

fn reachable(e: &Entry, args: &[Type]) -> bool {
    let direct = args.iter().enumerate().all(|(i, &t)| match e.arg(i) {
        Sig::Is(want) => implicit(t, want),
        _ => true,
    });
    direct && bind(e, args).is_ok()
}

/// What the polymorphic types of a call are.
#[derive(Default)]
struct Binding {
    element: Option<Type>,
    array: Option<Type>,
    common: Option<Type>,
    common_array: Option<Type>,
}

/// Decides the polymorphic types; the error is PostgreSQL's message.
fn bind(e: &Entry, args: &[Type]) -> Result<Binding> {
    let fail = |m: &str| Error::new(SqlState::DATATYPE_MISMATCH, m);
    let mut b = Binding::default();
    let mut commons = Vec::new();
    let (mut poly, mut compatible, mut common_arrays) = (false, false, false);
    for (i, &t) in args.iter().enumerate() {
        let s = e.arg(i);
        poly |= matches!(
            s,
            Sig::AnyElement | Sig::AnyArray | Sig::AnyNonArray | Sig::AnyEnum
        );
        compatible |= matches!(
            s,
            Sig::AnyCompatible | Sig::AnyCompatibleArray | Sig::AnyCompatibleNonArray
        );
        common_arrays |= s == Sig::AnyCompatibleArray;
        if t == Type::Unknown {
            continue;
        }
        match s {
            Sig::AnyElement | Sig::AnyNonArray | Sig::AnyEnum => {
                if s == Sig::AnyEnum && !matches!(t, Type::User(u) if !u.is_composite()) {
                    return Err(fail("type matched to anyenum is not an enum type"));
                }
                if s == Sig::AnyNonArray && t.element().is_some() {
                    return Err(fail("type matched to anynonarray is an array type"));
                }
                if b.element.is_some_and(|x| x != t) {
                    return Err(fail("arguments declared \"anyelement\" are not all alike"));
                }
                b.element = Some(t);
            }
            Sig::AnyArray => {
                if t.element().is_none() {
                    return Err(fail("argument declared anyarray is not an array"));
                }
                if b.array.is_some_and(|x| x != t) {
                    return Err(fail("arguments declared \"anyarray\" are not all alike"));
                }
                b.array = Some(t);
            }
            Sig::AnyCompatibleArray => commons.push(
                t.element()
                    .ok_or_else(|| fail("argument declared anycompatiblearray is not an array"))?,
            ),
            Sig::AnyCompatibleNonArray if t.element().is_some() => {
                return Err(fail(
                    "type matched to anycompatiblenonarray is an array type",
                ));
            }
            Sig::AnyCompatible | Sig::AnyCompatibleNonArray => commons.push(t),
            _ => {}
        }
    }
    if poly {
        if let Some(a) = b.array {
            let el = a.element().expect("checked");
            if b.element.is_some_and(|x| x != el) {
                return Err(fail(
                    "argument declared anyarray is not consistent with argument declared anyelement",
                ));
            }
            b.element = Some(el);
        } else if let Some(el) = b.element {
            b.array = el.array_of();
        }
        let wants_array = e.ret == Sig::AnyArray || e.args.contains(&Sig::AnyArray);
        if let Some(element) = b.element
            && b.array.is_none()
            && wants_array
        {
            return Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!(
                    "could not find array type for data type {}",
                    format_type(element, -1)
                ),
            ));
        }
    }
    if compatible {
        let t = select_common_type(&commons).ok_or_else(|| {
            fail("arguments of anycompatible family cannot be cast to a common type")
        })?;
        if commons.iter().any(|&c| !implicit(c, t)) {
            return Err(fail(
                "arguments of anycompatible family cannot be cast to a common type",
            ));
        }
        b.common = Some(t);
        b.common_array = t.array_of();
        if b.common_array.is_none() && (common_arrays || e.ret == Sig::AnyCompatibleArray) {
            return Err(fail("no array type for the common type"));
        }
    }
    Ok(b)
}

fn resolve(e: &Entry, args: &[Type]) -> Result<Resolved> {
    let b = bind(e, args)?;
    let unknown = || {
        Error::new(
            SqlState::DATATYPE_MISMATCH,
            "could not determine polymorphic type because input has type unknown",
        )
    };
    let concrete = |s: Sig, given: Option<Type>| -> Result<Type> {
        Ok(match s {
            Sig::Is(t) => t,
            Sig::AnyElement | Sig::AnyNonArray | Sig::AnyEnum => b.element.ok_or_else(unknown)?,
            Sig::AnyArray => b.array.ok_or_else(unknown)?,
            Sig::AnyCompatible | Sig::AnyCompatibleNonArray => b.common.ok_or_else(unknown)?,
            Sig::AnyCompatibleArray => b.common_array.ok_or_else(unknown)?,
            Sig::Any => match given {
                None | Some(Type::Unknown) => Type::Text,
                Some(t) => t,
            },
        })
    };
    let mut types = Vec::with_capacity(args.len());
    for (i, &t) in args.iter().enumerate() {
        let want = e.arg(i);
        // int2vector and oidvector stay what they are where any array is taken.
        let kept = want.is_polymorphic() && t.element().is_some() && Some(t) == b.array;
        types.push(if kept { t } else { concrete(want, Some(t))? });
    }
    Ok(Resolved {
        name: e.name,
        ret: concrete(e.ret, None)?,
        args: types,
        strict: e.strict,
        volatility: e.volatility,
        kind: e.kind,
        columns: e.columns,
    })
}
