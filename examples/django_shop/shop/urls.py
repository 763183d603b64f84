from django.urls import path

from shop import views

urlpatterns = [path("orders", views.place_order), path("receipts/<task_id>", views.show_receipt)]
