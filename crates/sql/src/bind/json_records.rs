//! `json_to_record`, `json_to_recordset` and their kin of `jsonb` in FROM, whose columns the alias says.
//!
//! ```text
//! FROM jsonb_to_recordset(x) AS r(a int)
//!   ──▶  FROM LATERAL (SELECT CAST("json record field"(v, 'a', 'scalar') AS int) AS a FROM jsonb_array_elements(x) AS e(v)) AS r
//! ```
//! The inner function gives the text that PostgreSQL hands to the type's input, and NULL for what is missing or null.
//!
//! Left out on purpose: `json_populate_record` and its kin, WITH ORDINALITY, columns of `varchar(n)` and `char(n)`, since a cast cuts what the
//! input of these types refuses.

use crate::catalog::fold;
use crate::types::ident::quote_literal;
use base::{Error, Result, SqlState};
use sqlparser::ast::{
    DataType, FunctionArg, Query, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
};

/// The query that stands for the call, with the alias that it gets; none: this is another function.
pub(super) fn rewritten(
    name: &str,
    args: &[FunctionArg],
    ordinality: bool,
    alias: Option<&TableAlias>,
) -> Result<Option<(Box<Query>, TableAlias)>> {
    let (json, set) = match name {
        "json_to_record" => ("json", false),
        "jsonb_to_record" => ("jsonb", false),
        "json_to_recordset" => ("json", true),
        "jsonb_to_recordset" => ("jsonb", true),
        _ => return Ok(None),
    };
    if ordinality {
        let what = format!("{name} WITH ORDINALITY");
        return Err(Error::unsupported(what));
    }
    let columns = alias.map_or(&[][..], |a| &a.columns);
    let (Some(alias), false) = (alias, columns.iter().any(|c| c.data_type.is_none())) else {
        return Err(no_list());
    };
    if columns.is_empty() {
        return Err(no_list());
    }
    let mut list = vec![];
    for c in columns {
        let ty = c.data_type.as_ref().ok_or_else(no_list)?;
        let key = quote_literal(&fold(&c.name));
        let kind = kind(ty)?;
        list.push(format!(
            "CAST(\"json record field\"(v, {key}, '{kind}') AS {ty}) AS {}",
            c.name
        ));
    }
    let list = list.join(", ");
    let text = match set {
        true => format!("SELECT {list} FROM {json}_array_elements(NULL) AS e(v)"),
        false => format!("SELECT {list} FROM \"{json} record\"(NULL) AS e(v)"),
    };
    let mut query = super::parse_query(&text)?;
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(Error::internal("a query of rows of JSON"));
    };
    match select.from.first_mut().map(|f| &mut f.relation) {
        Some(TableFactor::Table {
            args: Some(place), ..
        }) => place.args = args.to_vec(),
        _ => return Err(Error::internal("a query over JSON")),
    }
    let mut alias = alias.clone();
    alias.columns = columns
        .iter()
        .map(|c| TableAliasColumnDef {
            name: c.name.clone(),
            data_type: None,
        })
        .collect();
    Ok(Some((Box::new(query), alias)))
}

fn no_list() -> Error {
    let what = "a column definition list is required for functions returning \"record\"";
    Error::new(SqlState::SYNTAX_ERROR, what)
}

/// How a value of JSON becomes one of the type.
fn kind(ty: &DataType) -> Result<&'static str> {
    Ok(match ty {
        DataType::JSON | DataType::JSONB => "json",
        DataType::Array(_) => "array",
        DataType::Varchar(Some(_))
        | DataType::CharacterVarying(Some(_))
        | DataType::CharVarying(Some(_))
        | DataType::Char(_)
        | DataType::Character(_) => {
            let what = format!("a column of type {ty} of a record of JSON");
            return Err(Error::unsupported(what));
        }
        _ => "scalar",
    })
}
