//! The type that a type name in the syntax tree means.

use crate::types::typename;
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::DataType;

/// The type of this syntax, by its text: `NUMERIC(10,2)`, `TIMESTAMP(3) WITH TIME ZONE`, `INT[]`. 42704, 22023, 0A000.
pub fn column_type(dt: &DataType) -> Result<ColumnType> {
    type_from_text(&dt.to_string())
}

/// The built-in type of this text.
pub fn type_from_text(text: &str) -> Result<ColumnType> {
    let mut name = text.trim();
    let mut array = false;
    while name.ends_with(']')
        && let Some(open) = name.rfind('[')
    {
        (name, array) = (name[..open].trim_end(), true);
    }
    let (mut plain, mut mods) = (name.to_owned(), vec![]);
    if let (Some(open), Some(close)) = (name.find('('), name.rfind(')')) {
        for m in name[open + 1..close].split(',') {
            let m = m.trim();
            mods.push(m.parse::<i32>().map_err(|_| {
                Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("invalid type modifier \"{m}\""),
                )
            })?);
        }
        plain = format!("{}{}", &name[..open], &name[close + 1..]);
    }
    typename::from_sql_name(&plain, &mods, array)
}

/// The integer type behind `serial` and its kin.
pub(super) fn serial(dt: &DataType) -> Option<Type> {
    match dt.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(Type::Int2),
        "serial" | "serial4" => Some(Type::Int4),
        "bigserial" | "serial8" => Some(Type::Int8),
        _ => None,
    }
}
