//! sea-orm: its migrator forth and back, entities with relations, enums, upserts, paging, transactions.

use sea_orm::entity::prelude::*;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ActiveValue::Set, Database, IsolationLevel, QueryOrder, QuerySelect, TransactionTrait};
use sea_orm_migration::prelude::*;

mod author {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "author")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        #[sea_orm(unique)]
        pub name: String,
        pub more: Option<Json>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {
        #[sea_orm(has_many = "super::book::Entity")]
        Book,
    }

    impl Related<super::book::Entity> for Entity {
        fn to() -> RelationDef {
            Relation::Book.def()
        }
    }

    impl ActiveModelBehavior for ActiveModel {}
}

mod book {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "book")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub author_id: i32,
        pub title: String,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {
        #[sea_orm(belongs_to = "super::author::Entity", from = "Column::AuthorId", to = "super::author::Column::Id")]
        Author,
    }

    impl Related<super::author::Entity> for Entity {
        fn to() -> RelationDef {
            Relation::Author.def()
        }
    }

    impl ActiveModelBehavior for ActiveModel {}
}

struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(Step)]
    }
}

struct Step;

impl MigrationName for Step {
    fn name(&self) -> &str {
        "m0001_step"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Step {
    async fn up(&self, m: &SchemaManager) -> Result<(), DbErr> {
        let schema = sea_orm::Schema::new(m.get_database_backend());
        m.create_table(schema.create_table_from_entity(author::Entity)).await?;
        m.create_table(schema.create_table_from_entity(book::Entity)).await?;
        assert!(m.has_table("author").await? && m.has_column("book", "title").await?);
        m.create_index(Index::create().name("by_title").table(book::Entity).col(book::Column::Title).to_owned()).await
    }

    async fn down(&self, m: &SchemaManager) -> Result<(), DbErr> {
        assert!(m.has_index("book", "by_title").await?);
        m.drop_table(Table::drop().table(book::Entity).to_owned()).await?;
        m.drop_table(Table::drop().table(author::Entity).to_owned()).await
    }
}

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).unwrap();
    let db = Database::connect(format!("postgres://canon@127.0.0.1:{port}/canon")).await.unwrap();
    Migrator::up(&db, None).await.unwrap();
    let named = |name: &str| author::ActiveModel {
        name: Set(name.into()),
        more: Set(Some(serde_json::json!({ "x": 1 }))),
        ..Default::default()
    };
    let ada = named("ada").insert(&db).await.unwrap();
    let upsert = OnConflict::column(author::Column::Name).update_column(author::Column::More).to_owned();
    author::Entity::insert(named("ada")).on_conflict(upsert).exec(&db).await.unwrap();
    let books = (0..30).map(|i| book::ActiveModel { author_id: Set(ada.id), title: Set(format!("t{i:02}")), ..Default::default() });
    book::Entity::insert_many(books).exec(&db).await.unwrap();
    let found = author::Entity::find().find_with_related(book::Entity).all(&db).await.unwrap();
    assert_eq!((found.len(), found[0].1.len()), (1, 30));
    let pages = book::Entity::find().order_by_asc(book::Column::Title).paginate(&db, 7);
    assert_eq!(pages.num_pages().await.unwrap(), 5);
    assert_eq!(pages.fetch_page(4).await.unwrap().len(), 2);
    let t = db.begin_with_config(Some(IsolationLevel::Serializable), None).await.unwrap();
    author::Entity::find_by_id(ada.id).lock_exclusive().one(&t).await.unwrap().unwrap();
    let inner = t.begin().await.unwrap();
    book::Entity::delete_many().exec(&inner).await.unwrap();
    inner.rollback().await.unwrap();
    t.commit().await.unwrap();
    assert_eq!(book::Entity::find().count(&db).await.unwrap(), 30);
    Migrator::down(&db, None).await.unwrap();
}
