//! CREATE INDEX, ALTER INDEX.
//!
//! An expression and a condition become hidden columns of the table ([`base::schema`]), and the rows that are there are written anew with them.
//!
//! Left out on purpose: other methods than btree (0A000); expressions and conditions over tables with split columns, as generated columns.
//! CONCURRENTLY is accepted: an index is built inside its transaction and stops nobody's reads.

use super::alter::next_row_version;
use super::constraints::{included, indexable, no_column, place, written_names};
use super::create_table::{check_storage_parameters, push_hidden};
use super::expr_text;
use super::fill::{Fill, With};
use super::work::Work;
use crate::catalog::Resolved;
use base::schema::{Column, Deferral, Index, IndexColumn, Object, Relation, TableDef};
use base::{ColumnIdx, ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{
    AlterIndexOperation, CreateIndex, Expr, IndexType, ObjectName, ObjectNamePart, OrderBySort,
    SqlOption,
};

/// Most columns of an index.
const MAX_INDEX_COLUMNS: usize = 32;

impl Work<'_> {
    pub(super) fn create_index(&mut self, c: &CreateIndex) -> Result<String> {
        let tag = "CREATE INDEX".to_string();
        let table = match self.resolve(&c.table_name)? {
            Resolved::Relation(Relation::Table(t)) => t,
            Resolved::Virtual(v) => {
                return Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    format!("permission denied: \"{}\" is a system catalog", v.name()),
                ));
            }
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot create index on relation \"{}\"", other.name()),
                ));
            }
        };
        self.must_own("table", &table.def.name, table.def.owner)?;
        self.not_awaited("CREATE INDEX", table.def.id)?;
        self.may_name_in(table.def.namespace)?;
        if c.concurrently && self.ctx.in_transaction_block {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "CREATE INDEX CONCURRENTLY cannot run inside a transaction block",
            ));
        }
        match &c.using {
            None | Some(IndexType::BTree) => {}
            Some(IndexType::Custom(i)) => {
                let method = crate::catalog::fold(i);
                return Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("access method \"{method}\" does not exist"),
                ));
            }
            Some(other) => return Err(Error::unsupported(format!("index method {other}"))),
        }
        check_index_parameters(&c.with)?;
        let mut def = table.def.clone();
        let (columns, predicate) = self.index_key(&mut def, c)?;
        let include = included(&def, &c.include)?;
        if columns.len() > MAX_INDEX_COLUMNS {
            return Err(Error::new(
                SqlState::TOO_MANY_COLUMNS,
                format!("cannot use more than {MAX_INDEX_COLUMNS} columns in an index"),
            ));
        }
        let name = match &c.name {
            Some(n) => self.index_name(n, &table.def.namespace)?,
            None => {
                let written = &columns[usize::from(predicate.is_some())..];
                let second = written_names(&def, written, &include);
                self.relation_name(def.namespace, &def.name, &second, "idx")
            }
        };
        if c.if_not_exists && self.taken(def.namespace, &name) {
            self.skip_existing(&name);
            return Ok(tag);
        }
        self.must_be_free(def.namespace, &name)?;
        let id = self.oid();
        let hidden = |c: &ColumnIdx| def.columns[usize::from(*c)].is_hidden();
        let key = columns.iter().map(|c| c.column);
        let computed: Vec<ColumnIdx> = key.filter(hidden).collect();
        def.indexes.push(Index {
            id,
            name,
            columns,
            unique: c.unique,
            primary: false,
            constraint: false,
            constraint_oid: 0,
            nulls_not_distinct: c.nulls_distinct == Some(false),
            predicate,
            include,
            deferral: Deferral::Never,
            late_primary: false,
        });
        self.fills.extend(computed.into_iter().map(|column| Fill {
            table: table.def.id,
            column,
            with: With::Computed,
        }));
        self.put(Object::Table(def));
        Ok(tag)
    }

    /// The key of the index, with hidden columns added to the table for its expressions and its condition.
    fn index_key(
        &mut self,
        def: &mut TableDef,
        c: &CreateIndex,
    ) -> Result<(Vec<IndexColumn>, Option<String>)> {
        let mut columns = vec![];
        let mut predicate = None;
        if let Some(p) = &c.predicate {
            if c.nulls_distinct == Some(false) {
                return Err(Error::unsupported("NULLS NOT DISTINCT of a partial index"));
            }
            let text = self.text_of(def, p)?;
            // True where the condition holds, NULL elsewhere.
            let hidden = format!("({text}) OR NULL");
            self.bind_in_index(def, &text, "index predicate")?;
            columns.push(IndexColumn {
                column: self.hide(def, hidden, Type::Bool.into())?,
                desc: false,
                nulls_first: false,
            });
            predicate = Some(text);
        }
        for k in &c.columns {
            let e = crate::bind::without_collation(&k.column.expr);
            let text = self.text_of(def, e)?;
            let column = match expr_text::parse(&text)? {
                Expr::Identifier(name) => {
                    let name = crate::catalog::fold(&name);
                    place(def, &name).ok_or_else(|| no_column(&name))?
                }
                _ => {
                    let ty = self.bind_in_index(def, &text, "index expression")?;
                    let ty = match ty.ty {
                        Type::Record => {
                            let what = "an index expression has pseudo-type record";
                            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
                        }
                        Type::Unknown => Type::Text.into(),
                        _ => ty,
                    };
                    self.hide(def, text, ty)?
                }
            };
            indexable(def, column)?;
            if let Some(class) = &k.operator_class {
                known_class(class, def.columns[usize::from(column)].ty().ty)?;
            }
            let desc = match &k.column.options.sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(OrderBySort::Using(_)) => return Err(Error::unsupported("USING in an index")),
            };
            columns.push(IndexColumn {
                column,
                desc,
                nulls_first: k.column.options.nulls_first.unwrap_or(desc),
            });
        }
        Ok((columns, predicate))
    }

    /// The text of an expression over the row of this table, as it is kept.
    pub(super) fn text_of(&self, def: &TableDef, e: &Expr) -> Result<String> {
        let text = expr_text::unqualified(&expr_text::print(e)?, &def.name);
        Ok(expr_text::pin_types(self, &text))
    }

    fn bind_in_index(&self, def: &TableDef, text: &str, what: &'static str) -> Result<ColumnType> {
        let e = expr_text::parse(text)?;
        let (schema, path) = (&self.schema, self.ctx.search_path);
        self.ctx
            .analyzer
            .index_expression(schema, path, def, (&e, what))
    }

    /// Adds a hidden column for an expression.
    fn hide(&self, def: &mut TableDef, text: String, ty: ColumnType) -> Result<ColumnIdx> {
        if def.columns.iter().any(|c| c.split.is_some()) {
            return Err(Error::unsupported(
                "an index over an expression, or a partial one, on a table with split columns",
            ));
        }
        next_row_version(def)?;
        let mut column = Column::new(text.clone(), ty);
        (column.dropped, column.generated, column.default) = (true, true, Some(text));
        // The place of a column that is gone, of this type: an index that is made each night takes no new one each night.
        let free = |c: &Column| {
            let same = (c.type_oid, c.typmod) == (column.type_oid, column.typmod);
            c.name.starts_with("........pg.dropped.") && c.dropped && !c.is_hidden() && same
        };
        match def.columns.iter().position(free) {
            Some(at) => {
                def.columns[at] = column;
                Ok(at as ColumnIdx)
            }
            None => push_hidden(def, column),
        }
    }

    /// An index lives in its table's schema, whatever its name says.
    fn index_name(&mut self, name: &ObjectName, table: &base::Oid) -> Result<String> {
        let (ns, rel) = self.split(name)?;
        if let Some(ns) = ns
            && self.namespace(&ns)? != *table
        {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "an index is created in the schema of its table",
            ));
        }
        if let Some(ObjectNamePart::Identifier(i)) = name.0.last() {
            self.name(i);
        }
        Ok(rel)
    }

    pub(super) fn alter_index(
        &mut self,
        name: &ObjectName,
        operation: &AlterIndexOperation,
    ) -> Result<String> {
        let AlterIndexOperation::RenameIndex { index_name } = operation;
        match self.resolve(name)? {
            Resolved::Index(t, at) => {
                self.must_own("index", &t.def.indexes[at].name, t.def.owner)?;
                self.rename_index(&t, at, index_name)?;
            }
            other => return Err(self.wrong_kind(&other, "index")),
        }
        Ok("ALTER INDEX".into())
    }

    /// Renames an index, and with it the constraint that made it.
    pub(super) fn rename_index(
        &mut self,
        t: &base::schema::Table,
        at: usize,
        to: &ObjectName,
    ) -> Result<()> {
        let (_, to) = self.split(to)?;
        self.must_be_free(t.def.namespace, &to)?;
        let mut def = t.def.clone();
        def.indexes[at].name = to;
        self.put(Object::Table(def));
        Ok(())
    }
}

fn check_index_parameters(with: &[Expr]) -> Result<()> {
    for e in with {
        let Expr::BinaryOp { left, right, .. } = e else {
            return Err(Error::unsupported(format!("index parameter {e}")));
        };
        let Expr::Identifier(key) = &**left else {
            return Err(Error::unsupported(format!("index parameter {e}")));
        };
        if key.value.eq_ignore_ascii_case("deduplicate_items") {
            continue;
        }
        check_storage_parameters(&[SqlOption::KeyValue {
            key: key.clone(),
            value: (**right).clone(),
        }])?;
    }
    Ok(())
}
/// Operator classes that order as the columns do: each type's own, and those by bytes, since the collation is C. 42704 for others, and
/// 42804 where the class is not for the type.
fn known_class(class: &sqlparser::ast::ObjectName, ty: base::Type) -> Result<()> {
    use base::Type::{self, Bpchar, Text, Varchar};
    let (_, name) = crate::catalog::split_name(class)?;
    let of = |t: &&Type| name.strip_suffix("_ops") == Some(t.typname());
    let fits = match name.as_str() {
        "text_pattern_ops" | "varchar_pattern_ops" | "text_ops" | "varchar_ops" => {
            matches!(ty, Text | Varchar)
        }
        "bpchar_pattern_ops" => ty == Bpchar,
        _ => match Type::ALL.iter().find(of) {
            Some(t) => *t == ty,
            None => {
                let what =
                    format!("operator class \"{name}\" does not exist for access method \"btree\"");
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, what));
            }
        },
    };
    match fits {
        true => Ok(()),
        false => Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "operator class \"{name}\" does not accept data type {}",
                crate::types::typename::format_type(ty, -1)
            ),
        )),
    }
}
