from django.db import transaction
from django.http import HttpRequest, JsonResponse

from shop.models import Order
from shop.tasks import send_receipt


def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order and its receipt's task: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"], cents=int(request.POST["cents"]))
        result = send_receipt.enqueue(order.pk)
        if order.cents <= 0:
            transaction.set_rollback(True)
            return JsonResponse({"error": "an order costs something", "task": result.id}, status=422)
    return JsonResponse({"order": order.pk, "task": result.id}, status=202)


def show_receipt(_request: HttpRequest, task_id: str) -> JsonResponse:
    """What became of the task."""
    result = send_receipt.get_result(task_id)
    return JsonResponse(
        {"status": result.status, "receipt": result.return_value if result.is_finished else None}
    )
