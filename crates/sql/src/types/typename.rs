//! Names of types: as PostgreSQL prints them (`format_type`) and as SQL writes them.

use base::modifier::numeric_modifier;
use base::packed::bits::MAX_BITS;
use base::{ColumnType, Error, Result, SqlState, Type};

/// The type's name as error messages, `pg_typeof` and psql show it: `character varying(20)`, `integer[]`.
pub fn format_type(ty: Type, typmod: i32) -> String {
    if let Some(e) = ty.element()
        && !matches!(ty, Type::Int2Vector | Type::OidVector)
    {
        return format!("{}[]", format_type(e, typmod));
    }
    let name = match ty {
        Type::Bool => "boolean",
        Type::Int2 => "smallint",
        Type::Int4 => "integer",
        Type::Int8 => "bigint",
        Type::Float4 => "real",
        Type::Float8 => "double precision",
        Type::Char => "\"char\"",
        Type::Varchar if typmod >= 4 => return format!("character varying({})", typmod - 4),
        Type::Varchar => "character varying",
        Type::Bpchar if typmod >= 4 => return format!("character({})", typmod - 4),
        // Without a modifier the name `character` would mean character(1).
        Type::Bpchar => "character",
        Type::Numeric if typmod >= 4 => {
            let (p, s) = numeric_modifier(typmod).expect("typmod is set");
            return format!("numeric({p},{s})");
        }
        Type::Time if typmod >= 0 => return format!("time({typmod}) without time zone"),
        Type::Time => "time without time zone",
        Type::TimeTz if typmod >= 0 => return format!("time({typmod}) with time zone"),
        Type::TimeTz => "time with time zone",
        Type::Bit if typmod >= 0 => return format!("bit({typmod})"),
        Type::VarBit if typmod >= 0 => return format!("bit varying({typmod})"),
        Type::VarBit => "bit varying",
        Type::Timestamp if typmod >= 0 => return format!("timestamp({typmod}) without time zone"),
        Type::Timestamp => "timestamp without time zone",
        Type::TimestampTz if typmod >= 0 => return format!("timestamp({typmod}) with time zone"),
        Type::TimestampTz => "timestamp with time zone",
        Type::User(u) => return super::ident::quote_ident(u.definition().name),
        t => t.typname(),
    };
    name.to_string()
}

/// A built-in type as a cast names it that changes no length: `character` would mean one character, and `bit` one bit.
pub fn cast_name(ty: Type) -> String {
    match ty {
        Type::Bpchar => "bpchar".into(),
        Type::Bit => "\"bit\"".into(),
        ty => format_type(ty, -1),
    }
}

/// A type as SQL names it, with the numbers in parentheses after it. `name` may be any of PostgreSQL's spellings
/// (`int`, `integer`, `int4`, `character varying`, `timestamp with time zone`, `_int4`, `serial` is the caller's).
/// 42704 for an unknown name, 22023 for a bad modifier.
pub fn from_sql_name(name: &str, mods: &[i32], array: bool) -> Result<ColumnType> {
    let lower = name.trim().to_lowercase();
    let mut words = lower.as_str();
    let mut array = array;
    while let Some(w) = words.strip_suffix("[]") {
        (words, array) = (w.trim_end(), true);
    }
    let schema = ["pg_catalog.", "\"pg_catalog\"."];
    let plain = schema.iter().find_map(|s| words.strip_prefix(s));
    let words = unquoted(plain.unwrap_or(words), name);
    let squeezed = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let ty = match squeezed.as_str() {
        "boolean" | "bool" => Type::Bool,
        "smallint" | "int2" => Type::Int2,
        "integer" | "int" | "int4" => Type::Int4,
        "bigint" | "int8" => Type::Int8,
        "real" | "float4" => Type::Float4,
        "float" => match mods {
            [] | [25..=53] => Type::Float8,
            [1..=24] => Type::Float4,
            [n, ..] if *n < 1 => {
                return Err(bad("precision for type float must be at least 1 bit"));
            }
            _ => return Err(bad("precision for type float must be less than 54 bits")),
        },
        "double precision" | "float8" => Type::Float8,
        "numeric" | "decimal" | "dec" => Type::Numeric,
        "character varying"
        | "char varying"
        | "varchar"
        | "national character varying"
        | "nchar varying" => Type::Varchar,
        "character" | "char" | "bpchar" | "national character" | "nchar" => Type::Bpchar,
        "\"char\"" => Type::Char,
        "time" | "time without time zone" => Type::Time,
        "timestamp" | "timestamp without time zone" => Type::Timestamp,
        "timestamptz" | "timestamp with time zone" => Type::TimestampTz,
        // An overload is picked by its name alone.
        "regprocedure" => Type::RegProc,
        "timetz" | "time with time zone" => Type::TimeTz,
        "bit varying" | "varbit" => Type::VarBit,
        other => {
            let plain = other.trim_matches('"');
            *Type::ALL
                .iter()
                .find(|t| t.typname() == plain && t.extension().is_none())
                .ok_or_else(|| unknown(name))?
        }
    };
    let typmod = match (ty, mods) {
        (Type::Bpchar, []) if matches!(squeezed.as_str(), "bpchar") => -1,
        (Type::Bpchar, []) => 5,
        (Type::Bit, []) if !name.contains('"') => 1,
        (Type::Float8 | Type::Float4, _) | (_, []) => -1,
        (Type::Varchar | Type::Bpchar, [n]) => {
            let shown = if ty == Type::Varchar {
                "varchar"
            } else {
                "char"
            };
            if *n < 1 {
                return Err(bad(format!("length for type {shown} must be at least 1")));
            }
            if *n > 10_485_760 {
                return Err(bad(format!(
                    "length for type {shown} cannot exceed 10485760"
                )));
            }
            n + 4
        }
        (Type::Numeric, [p]) => numeric_typmod(*p, 0)?,
        (Type::Numeric, [p, s]) => numeric_typmod(*p, *s)?,
        (Type::Numeric, _) => return Err(bad("invalid NUMERIC type modifier")),
        (Type::Bit | Type::VarBit, [n]) => bit_typmod(ty, *n)?,
        (Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz, [p]) => (*p).clamp(0, 6),
        (Type::Interval, [p]) => (*p).clamp(0, 6),
        _ => {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("type modifier is not allowed for type \"{}\"", ty.typname()),
            ));
        }
    };
    let ty = if array && !matches!(ty, Type::Int2Vector | Type::OidVector) {
        match ty.array_of() {
            Some(a) => a,
            None if ty.element().is_some() => ty,
            None => {
                return Err(Error::unsupported(format!(
                    "type {}[]",
                    format_type(ty, -1)
                )));
            }
        }
    } else {
        ty
    };
    Ok(ColumnType { ty, typmod })
}

/// A quoted name without its quotes, where they do not matter. `char` and `"char"` are two types, and words that only the grammar knows
/// (`integer`) are no names.
fn unquoted<'a>(words: &'a str, written: &str) -> &'a str {
    let plain = words.strip_prefix('"').and_then(|w| w.strip_suffix('"'));
    match plain {
        Some(p)
            if written.contains(p) && Type::ALL.iter().any(|t| t.typname() == p && p != "char") =>
        {
            p
        }
        _ => words,
    }
}

/// A type written with its modifier in one text: `numeric(10,2)`, `character varying(5)[]`, `timestamp(3) with time zone`.
pub fn parse(s: &str) -> Result<ColumnType> {
    let Some((before, rest)) = s.split_once('(') else {
        return from_sql_name(s, &[], false);
    };
    let (mods, after) = rest
        .split_once(')')
        .ok_or_else(|| Error::new(SqlState::SYNTAX_ERROR, format!("invalid type name \"{s}\"")))?;
    let mods: Vec<i32> = mods
        .split(',')
        .map(|m| m.trim().parse())
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::new(SqlState::SYNTAX_ERROR, format!("invalid type name \"{s}\"")))?;
    from_sql_name(&format!("{before}{after}"), &mods, false)
}

/// 42704.
fn unknown(name: &str) -> Error {
    let what = format!("type \"{name}\" does not exist");
    Error::new(SqlState::UNDEFINED_OBJECT, what)
}

fn bit_typmod(ty: Type, n: i32) -> Result<i32> {
    let shown = if ty == Type::Bit { "bit" } else { "varbit" };
    if n < 1 {
        return Err(bad(format!("length for type {shown} must be at least 1")));
    }
    if n as usize > MAX_BITS {
        return Err(bad(format!(
            "length for type {shown} cannot exceed {MAX_BITS}"
        )));
    }
    Ok(n)
}

fn numeric_typmod(p: i32, s: i32) -> Result<i32> {
    if !(1..=1000).contains(&p) {
        return Err(bad(format!(
            "NUMERIC precision {p} must be between 1 and 1000"
        )));
    }
    if !(-1000..=1000).contains(&s) {
        return Err(bad(format!(
            "NUMERIC scale {s} must be between -1000 and 1000"
        )));
    }
    Ok((p << 16 | (s & 0x7ff)) + 4)
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        let f = |n: &str, m: &[i32], a| {
            let t = from_sql_name(n, m, a).unwrap();
            format_type(t.ty, t.typmod)
        };
        assert_eq!(f("varchar", &[20], false), "character varying(20)");
        assert_eq!(f("CHAR", &[], false), "character(1)");
        assert_eq!(f("decimal", &[10, 2], false), "numeric(10,2)");
        assert_eq!(f("numeric", &[5, -2], false), "numeric(5,-2)");
        assert_eq!(f("int", &[], true), "integer[]");
        assert_eq!(f("text[]", &[], false), "text[]");
        assert_eq!(
            f("timestamp with time zone", &[3], false),
            "timestamp(3) with time zone"
        );
        assert_eq!(f("pg_catalog.int8", &[], false), "bigint");
        assert_eq!(f("\"pg_catalog\".\"int4\"", &[], false), "integer");
        assert_eq!(f("\"varchar\"", &[], false), "character varying");
        assert_eq!(f("\"char\"", &[], false), "\"char\"");
        assert_eq!(f("_int4", &[], false), "integer[]");
        assert_eq!(f("float", &[24], false), "real");
        assert_eq!(f("time with time zone", &[], false), "time with time zone");
        assert_eq!(f("TIMETZ", &[3], false), "time(3) with time zone");
        assert_eq!(f("bit", &[], false), "bit(1)");
        assert_eq!(f("bit varying", &[7], true), "bit varying(7)[]");
        assert_eq!(f("\"bit\"", &[], false), "bit");
        assert!(
            from_sql_name("nope", &[], false)
                .unwrap_err()
                .to_string()
                .contains("42704")
        );
    }
}
