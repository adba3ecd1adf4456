//! Catalogs over a schema that DDL made.

use super::functions::{Scope, call};
use super::relations::RELATIONS;
use super::*;
use crate::ddl::tests::Bench;
use std::collections::HashMap;

struct Facts;

impl SessionFacts for Facts {
    fn database(&self) -> String {
        "canon".into()
    }
    fn current_role(&self) -> Oid {
        base::schema::BOOTSTRAP_ROLE
    }
    fn settings(&self) -> Vec<SettingRow> {
        vec![SettingRow::default()]
    }
    fn activity(&self) -> Vec<ActivityRow> {
        vec![ActivityRow::default()]
    }
    fn prepared_statements(&self) -> Vec<PreparedRow> {
        vec![PreparedRow::default()]
    }
    fn cursors(&self) -> Vec<CursorRow> {
        vec![CursorRow::default()]
    }
}

fn shop() -> Catalog {
    let mut b = Bench::new();
    for sql in [
        "CREATE TABLE items (id serial PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x', qty int CHECK (qty >= 0))",
        "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, item int REFERENCES items ON DELETE CASCADE, UNIQUE (item, id))",
        "CREATE INDEX items_name ON items (name DESC, qty)",
        "CREATE VIEW v AS SELECT 1 AS a",
        "CREATE ROLE bob LOGIN",
        "GRANT SELECT ON items TO bob",
        "COMMENT ON TABLE items IS 'things'",
        "COMMENT ON COLUMN items.qty IS 'how many'",
        "ALTER TABLE items ADD COLUMN gone int",
        "ALTER TABLE items DROP COLUMN gone",
    ] {
        b.run(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    Catalog {
        schema: Arc::new(b.schema),
        tables: Default::default(),
    }
}

fn rows(c: &Catalog, ns: Oid, name: &str) -> Vec<HashMap<&'static str, Value>> {
    let t = virtual_table(ns, name).unwrap();
    let cx = CatalogScan {
        catalog: c,
        facts: &Facts,
    };
    let named = |row: Vec<Value>| t.columns().iter().map(|c| c.0).zip(row).collect();
    t.scan(&cx).unwrap().into_iter().map(named).collect()
}

/// Whether the value is one of the type: what the executor relies on.
fn fits(v: &Value, ty: Type) -> bool {
    match v {
        Value::Null => true,
        Value::Bool(_) => ty == Type::Bool,
        Value::Int2(_) => ty == Type::Int2,
        Value::Int4(_) => ty == Type::Int4,
        Value::Int8(_) => ty == Type::Int8,
        Value::Float4(_) => ty == Type::Float4,
        Value::Float8(_) => ty == Type::Float8,
        Value::Text(_) => ty.is_string() || matches!(ty, Type::PgNodeTree | Type::AclItem),
        Value::Numeric(_) => ty == Type::Numeric,
        Value::Char(_) => ty == Type::Char,
        Value::TimestampTz(_) => ty == Type::TimestampTz,
        Value::Oid(_) => {
            let reg = [
                Type::RegClass,
                Type::RegType,
                Type::RegProc,
                Type::RegNamespace,
            ];
            ty == Type::Oid || reg.contains(&ty)
        }
        Value::Array(a) => {
            ty.element() == Some(a.element) && a.items.iter().all(|i| fits(i, a.element))
        }
        _ => false,
    }
}

#[test]
fn every_catalog_gives_values_of_its_columns_types() {
    let c = shop();
    let cx = CatalogScan {
        catalog: &c,
        facts: &Facts,
    };
    let mut filled = 0;
    for r in RELATIONS.iter() {
        let all = r.scan(&cx).unwrap();
        filled += usize::from(!all.is_empty());
        for row in all {
            for (v, (name, ty)) in row.iter().zip(&r.columns) {
                assert!(fits(v, *ty), "{}.{name}: {v:?} is no {ty:?}", r.name);
            }
        }
    }
    assert!(filled > 40, "{filled}");
}

#[test]
fn relations_show_what_ddl_made() {
    let c = shop();
    let s = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let classes = rows(&c, PG_CATALOG, "pg_class");
    let class = |n: &str| classes.iter().find(|r| s(&r["relname"]) == n).unwrap();
    assert!(matches!(class("items")["relkind"], Value::Char(b'r')));
    assert!(matches!(
        class("items")["relhastriggers"],
        Value::Bool(true)
    ));
    assert!(matches!(class("items_pkey")["relkind"], Value::Char(b'i')));
    assert!(matches!(
        class("items_id_seq")["relkind"],
        Value::Char(b'S')
    ));
    assert!(matches!(class("v")["relkind"], Value::Char(b'v')));
    let items = class("items")["oid"].as_i64().unwrap();
    let defaults = rows(&c, PG_CATALOG, "pg_attrdef");
    let shown: Vec<String> = defaults.iter().map(|r| s(&r["adbin"])).collect();
    assert_eq!(
        shown,
        [
            "nextval('items_id_seq'::regclass)",
            "'x'::character varying"
        ]
    );
    let dropped = rows(&c, PG_CATALOG, "pg_attribute")
        .into_iter()
        .filter(|r| r["attrelid"].as_i64() == Some(items))
        .filter(|r| r["attisdropped"].as_bool() == Some(true))
        .count();
    assert_eq!(dropped, 1);
    let columns = rows(&c, INFORMATION_SCHEMA, "columns");
    let names: Vec<String> = columns
        .iter()
        .filter(|r| s(&r["table_schema"]) == "public")
        .map(|r| {
            format!(
                "{}.{}:{}",
                s(&r["table_name"]),
                s(&r["column_name"]),
                s(&r["data_type"])
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            "items.id:integer",
            "items.name:character varying",
            "items.qty:integer",
            "orders.id:integer",
            "orders.item:integer",
            "v.a:integer"
        ]
    );
}

#[test]
fn functions_print_definitions() {
    let c = shop();
    let path: Arc<[String]> = Arc::from(["public".to_string()]);
    let scope = Scope {
        schema: &c.schema,
        search_path: &path,
        facts: &Facts,
    };
    let f = |name: &str, args: &[Value]| {
        let v = call(&scope, name, &[], args).unwrap();
        v.as_str().map(str::to_owned)
    };
    let number = |name: &str| Value::Oid(c.schema.lookup(base::schema::PUBLIC, name).unwrap());
    assert_eq!(
        f("pg_get_indexdef", &[number("items_name")]).unwrap(),
        "CREATE INDEX items_name ON public.items USING btree (name DESC, qty)"
    );
    assert_eq!(
        f(
            "pg_get_indexdef",
            &[number("items_name"), Value::Int4(2), Value::Bool(true)]
        )
        .unwrap(),
        "qty"
    );
    let constraint = |name: &str, pretty: bool| {
        let all = rows(&c, PG_CATALOG, "pg_constraint");
        let row = all
            .iter()
            .find(|r| r["conname"].as_str() == Some(name))
            .unwrap();
        f(
            "pg_get_constraintdef",
            &[row["oid"].clone(), Value::Bool(pretty)],
        )
        .unwrap()
    };
    assert_eq!(constraint("items_pkey", true), "PRIMARY KEY (id)");
    assert_eq!(constraint("items_qty_check", true), "CHECK (qty >= 0)");
    assert_eq!(constraint("items_qty_check", false), "CHECK ((qty >= 0))");
    assert_eq!(
        constraint("orders_item_fkey", true),
        "FOREIGN KEY (item) REFERENCES items(id) ON DELETE CASCADE"
    );
    assert_eq!(f("obj_description", &[number("items")]).unwrap(), "things");
    assert_eq!(
        f("col_description", &[number("items"), Value::Int4(3)]).unwrap(),
        "how many"
    );
    assert_eq!(
        f("pg_get_serial_sequence", &["items".into(), "id".into()]).unwrap(),
        "public.items_id_seq"
    );
    let held = |p: &str| {
        let args = ["bob".into(), "items".into(), p.into()];
        call(&scope, "has_table_privilege", &[], &args)
            .unwrap()
            .as_bool()
    };
    assert_eq!(held("SELECT"), Some(true));
    assert_eq!(held("INSERT"), Some(false));
    assert_eq!(held("insert, select"), Some(true));
    let names = Names {
        role: base::schema::BOOTSTRAP_ROLE,
        schema: c.schema.clone(),
        search_path: path.clone(),
    };
    use crate::types::CatalogLookup;
    assert_eq!(names.relation_oid("pg_class").unwrap(), Some(1259));
    assert_eq!(
        names
            .procedure_name(names.procedure_oid("array_recv").unwrap().unwrap())
            .unwrap(),
        "array_recv"
    );
}
