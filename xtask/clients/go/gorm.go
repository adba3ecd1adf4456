// GORM: AutoMigrate, also over a table that has changed, associations, upserts, locks, batches, nested transactions.
package main

import (
	"fmt"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type Author struct {
	ID    uint
	Name  string `gorm:"size:20;uniqueIndex;comment:a name"`
	Years int
	Books []Book `gorm:"constraint:OnDelete:CASCADE"`
}

type Book struct {
	gorm.Model
	Title    string `gorm:"index:by_title,where:title <> ''"`
	Pages    int    `gorm:"check:pages > 0"`
	AuthorID uint
}

// Changed is the same table later.
type Changed struct {
	ID    uint
	Name  string `gorm:"size:50;uniqueIndex:idx_authors_name;comment:a name"`
	Years string
	More  string `gorm:"type:jsonb;default:'{}'"`
}

func (Changed) TableName() string { return "authors" }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func want(got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		panic(fmt.Sprintf("got %v, wanted %v", got, wanted))
	}
}

func main() {
	place := "host=127.0.0.1 port=" + os.Args[1] + " user=canon dbname=canon sslmode=disable"
	db, err := gorm.Open(postgres.Open(place), &gorm.Config{})
	must(err)
	for i := 0; i < 2; i++ {
		must(db.AutoMigrate(&Author{}, &Book{}))
	}
	must(db.Create(&Author{Name: "ada", Years: 36, Books: []Book{{Title: "x", Pages: 1}, {Title: "y", Pages: 2}}}).Error)
	var ada Author
	must(db.Preload("Books").First(&ada, "name = ?", "ada").Error)
	want(len(ada.Books), 2)
	upsert := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"years"})}
	must(db.Clauses(upsert).Create(&Author{Name: "ada", Years: 37}).Error)
	err = db.Transaction(func(tx *gorm.DB) error {
		must(tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&ada, "name = ?", "ada").Error)
		want(ada.Years, 37)
		inner := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&Book{Title: "z", Pages: -1, AuthorID: ada.ID}).Error })
		want(inner != nil, true)
		return tx.Model(&Book{}).Where("pages > ?", 1).Update("pages", gorm.Expr("pages * 2")).Error
	})
	must(err)
	must(db.Delete(&Book{}, "pages = ?", 4).Error)
	var left int64
	must(db.Model(&Book{}).Count(&left).Error)
	want(left, 1)
	must(db.AutoMigrate(&Changed{}))
	columns, err := db.Migrator().ColumnTypes(&Changed{})
	must(err)
	want(len(columns), 4)
	var changed Changed
	must(db.First(&changed).Error)
	want(changed.Years, "37")
	want(db.Migrator().HasIndex(&Book{}, "by_title"), true)
	must(db.Migrator().DropTable(&Book{}, &Author{}))
}
