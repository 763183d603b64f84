"""A job that is stored together with SQLModel's rows, or not at all.

Run it with: python examples/sqlmodel_app.py (needs sqlmodel)
Its jobs are run by: fairlead worker sqlmodel_app:fl (in this folder)
"""

from sqlmodel import Field, Session, SQLModel, create_engine, select

from fairlead.errors import JobUnknown
from fairlead.sync import Fairlead

fl = Fairlead(actor="shop")


class Invoice(SQLModel, table=True):
    """A row of yours."""

    __tablename__ = "example_invoices"
    id: int | None = Field(default=None, primary_key=True)
    cents: int


@fl.job(key="example.invoice")
def send_invoice(invoice: int) -> str:
    """Send an invoice."""
    return f"sent invoice {invoice}"


def main() -> None:
    with fl:
        # your application has an engine already; this one goes wherever Fairlead goes
        engine = create_engine(fl.direct_url.replace("postgresql://", "postgresql+psycopg://", 1))
        SQLModel.metadata.create_all(engine)
        with Session(engine) as session:
            invoice = Invoice(cents=1250)
            session.add(invoice)
            session.flush()  # the database gives it its id
            kept = send_invoice.enqueue(tenant="global", invoice=invoice.id, tx=session)
            session.commit()
            fl.tick()
            print(f"committed: {kept.result(timeout=120)}")

            session.add(Invoice(cents=0))
            undone = send_invoice.enqueue(tenant="global", invoice=2, tx=session)
            session.rollback()
            try:
                undone.read()
            except JobUnknown as error:
                print(f"rolled back: {error} Invoices: {len(session.exec(select(Invoice)).all())}")
        SQLModel.metadata.drop_all(engine)
        engine.dispose()


if __name__ == "__main__":
    main()
