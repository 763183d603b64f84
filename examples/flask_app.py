"""A Flask application that enqueues in its own transactions and shows what became of its jobs.

Run it with: python examples/flask_app.py (needs flask and sqlalchemy)
Its jobs are run by: fairlead worker flask_app:fl (in this folder)
"""

from typing import Any
from uuid import UUID

from flask import Flask, request
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from fairlead.errors import FairleadError
from fairlead.sync import Fairlead

fl = Fairlead(actor="shop")


@fl.job(key="example.receipt")
def send_receipt(order: int) -> str:
    """Send the receipt of an order."""
    return f"receipt of order {order}"


def create_app(engine: Engine) -> Flask:
    app = Flask(__name__)

    @app.post("/orders/<int:order>")
    def place_order(order: int) -> tuple[dict[str, Any], int]:
        tenant = request.headers.get("X-Tenant", "global")
        with Session(engine) as session, session.begin():  # the order and its job: both, or neither
            session.execute(text("select 'your own statements'"))
            job = send_receipt.enqueue(tenant=tenant, order=order, tx=session)
        return {"job": str(job.id)}, 202

    @app.get("/receipts/<uuid:job_id>")
    def show_receipt(job_id: UUID) -> dict[str, Any]:
        job = fl.read(job_id)
        return {"status": job.status, "receipt": job.output}

    @app.errorhandler(FairleadError)
    def refuse(error: FairleadError) -> tuple[dict[str, Any], int]:
        return error.as_dict(), error.http_status

    return app


if __name__ == "__main__":
    with fl:
        engine = create_engine(fl.direct_url.replace("postgresql://", "postgresql+psycopg://", 1))
        client = create_app(engine).test_client()
        placed = client.post("/orders/7")
        fl.tick()  # what a worker does
        print(placed.status_code, client.get(f"/receipts/{placed.get_json()['job']}").get_json())
        refused = client.post("/orders/8", headers={"X-Tenant": "nobody"})
        print("refused:", refused.status_code, refused.get_json()["code"])
        engine.dispose()
