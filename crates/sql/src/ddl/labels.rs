//! What names a label of an enum: looked for when the label is renamed.
//!
//! PostgreSQL keeps expressions as trees, in which a label is a number. Here they are texts, which are bound anew for each schema. So after the
//! rename each text that may name a label of the type is bound once. One that says the old label does not bind (22P02), and the rename is
//! refused: afterwards neither the table nor the view could be used.
//!
//! Left out on purpose: writing the new label into the texts, where a literal does not say of which type it is.

use super::constraints::live;
use super::depend::Node;
use super::expr_text::parse;
use super::work::Work;
use base::schema::{Column, Relation, TableDef, TypeKind};
use base::{ColumnType, Error, Oid, Result, SqlState};

impl Work<'_> {
    /// Binds what may name a label of this type, which is called otherwise now: 0A000 that names what still says `old`.
    pub(super) fn labels_still_hold(&self, of: Oid, old: &str) -> Result<()> {
        let Some(t) = self.schema.user_type(of) else {
            return Ok(());
        };
        let name = t.def.name.clone();
        let broken = self.broken_domain().or_else(|| {
            let mut all = self.schema.relations();
            all.find_map(|r| match r {
                Relation::Table(t) => self.broken_part(&t.def),
                Relation::View(v) => {
                    let (schema, path) = (&self.schema, self.ctx.search_path);
                    let bound = crate::bind::parse_query(&v.query)
                        .and_then(|q| self.ctx.analyzer.query(schema, path, &q));
                    is_broken(bound).then_some(Node::Relation(v.id))
                }
                Relation::Sequence(_) => None,
            })
        });
        match broken {
            None => Ok(()),
            Some(n) => Err(Error::unsupported(format!(
                "renaming label \"{old}\" of type \"{name}\", which {} names",
                self.describe(n)
            ))),
        }
    }

    /// The first part of a table whose text does not bind.
    fn broken_part(&self, def: &TableDef) -> Option<Node> {
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let analyzer = self.ctx.analyzer;
        let check = |text: &str| parse(text).and_then(|e| analyzer.check(schema, path, def, &e));
        let mut checks = def.checks.iter();
        if let Some(c) = checks.find(|c| is_broken(check(&c.expr))) {
            return Some(Node::Check(def.id, c.id));
        }
        for (at, c) in live(def) {
            let Some(text) = &c.default else { continue };
            let bound = parse(text).and_then(|e| match c.generated {
                true => analyzer.generated(schema, path, def, c, &e),
                false => analyzer.default(schema, path, c, &e),
            });
            if is_broken(bound) {
                return Some(Node::Default(def.id, at));
            }
        }
        let expression = |at: base::ColumnIdx| {
            let c = &def.columns[usize::from(at)];
            let text = c.default.as_deref().filter(|_| c.is_hidden());
            text.is_some_and(|text| {
                let what = "index expression";
                is_broken(
                    parse(text)
                        .and_then(|e| analyzer.index_expression(schema, path, def, (&e, what))),
                )
            })
        };
        let mut indexes = def.indexes.iter();
        let index = indexes.find(|i| i.columns.iter().any(|k| expression(k.column)))?;
        Some(Node::Index(def.id, index.id))
    }

    /// The first domain whose text does not bind.
    fn broken_domain(&self) -> Option<Node> {
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let analyzer = self.ctx.analyzer;
        let mut all = self.schema.user_types();
        let broken = all.find(|d| {
            let TypeKind::Domain(domain) = &d.def.kind else {
                return false;
            };
            let Some(ty) = schema.type_numbered(domain.base) else {
                return false;
            };
            let ty = ColumnType::plain(ty);
            let table = super::domain::value_table(&d.def, ty);
            let check =
                |text: &str| parse(text).and_then(|e| analyzer.check(schema, path, &table, &e));
            let column = Column::new("value", ty);
            let default = domain.default.as_deref();
            default.is_some_and(|text| {
                is_broken(parse(text).and_then(|e| analyzer.default(schema, path, &column, &e)))
            }) || domain.checks.iter().any(|c| is_broken(check(&c.expr)))
        });
        broken.map(|d| Node::Type(d.def.id))
    }
}

/// Whether binding found a literal that its type does not have.
fn is_broken<T>(bound: Result<T>) -> bool {
    bound.is_err_and(|e| e.code() == SqlState::INVALID_TEXT_REPRESENTATION)
}
