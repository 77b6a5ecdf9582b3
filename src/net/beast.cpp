// Asio's and Beast's own code, compiled once here (see BOOST_*_SEPARATE_COMPILATION in
// CMakeLists.txt); everyone else sees declarations only.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
