//! Names behind numbers, for the `reg*` types: what `'t'::regclass` and `oid::regclass` mean to one transaction.

use super::{Resolved, by_oid, display_name, find, types};
use crate::ddl::expr_text::{parse_name, quote_ident};
use crate::ddl::privileges::{check_named_namespace, usable_path};
use crate::types::CatalogLookup;
use base::schema::Schema;
use base::{Error, Oid, Result, SqlState};
use std::sync::Arc;

/// The names of one schema version under one search path.
pub struct Names {
    pub schema: Arc<Schema>,
    pub search_path: Arc<[String]>,
    /// The role that looks names up: schemas that it may not use are refused, and not searched.
    pub role: Oid,
}

impl Names {
    /// The relation that a name, as text, means.
    pub(super) fn relation(&self, name: &str) -> Result<Option<Resolved>> {
        let (ns, rel) = parse_name(name)?;
        if let Some(n) = &ns {
            check_named_namespace(&self.schema, self.role, n)?;
            return Ok(find(&self.schema, &[], Some(n), &rel));
        }
        let path = usable_path(&self.schema, self.role, &self.search_path);
        Ok(find(&self.schema, &path, None, &rel))
    }
}

impl CatalogLookup for Names {
    fn relation_oid(&self, name: &str) -> Result<Option<Oid>> {
        Ok(self.relation(name)?.map(|r| r.oid()))
    }

    fn relation_name(&self, oid: Oid) -> Option<String> {
        let r = by_oid(&self.schema, oid)?;
        Some(display_name(&self.schema, &self.search_path, &r))
    }

    fn namespace_oid(&self, name: &str) -> Option<Oid> {
        let (_, name) = parse_name(name).ok()?;
        self.schema.namespace_named(&name).map(|n| n.id)
    }

    fn namespace_name(&self, oid: Oid) -> Option<String> {
        self.schema.namespace(oid).map(|n| quote_ident(&n.name))
    }

    fn missing_namespace(&self, name: &str) -> Option<String> {
        let (schema, _) = parse_name(name).ok()?;
        schema.filter(|s| self.schema.namespace_named(s).is_none())
    }

    fn procedure_oid(&self, name: &str) -> Result<Option<Oid>> {
        // `name(types)` picks among overloads by name only: I/O functions, which is what tools ask for, have one form.
        let plain = name.split('(').next().unwrap_or(name).trim();
        let (schema, plain) = parse_name(plain)?;
        if schema.is_some_and(|s| s != "pg_catalog") {
            return Ok(None);
        }
        let mut found = types::procedures().filter(|(_, n)| *n == plain);
        let first = found.next().map(|(id, _)| id);
        if first.is_some() && found.next().is_some() {
            return Err(Error::new(
                SqlState::AMBIGUOUS_FUNCTION,
                format!("more than one function named \"{plain}\""),
            ));
        }
        Ok(first)
    }

    fn type_oid(&self, name: &str) -> Option<Oid> {
        super::user_types::number(&self.schema, &self.search_path, name)
            .ok()
            .or_else(|| types::pseudo_type(name))
    }

    fn type_name(&self, oid: Oid) -> Option<String> {
        super::user_types::shown(&self.schema, &self.search_path, oid)
            .or_else(|| types::name(oid).map(quote_ident))
    }

    fn procedure_name(&self, oid: Oid) -> Option<String> {
        types::procedures()
            .find(|(id, _)| *id == oid)
            .map(|(_, n)| quote_ident(n))
    }
}
