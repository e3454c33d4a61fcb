"""What people bring: Gymnasium environments, Minari data sets, modules of their own."""
